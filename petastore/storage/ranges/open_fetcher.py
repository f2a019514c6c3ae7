"""Who fetches ranges of a dataset's files: obstore where it can, and fsspec elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from petastore.storage.files.location import Location
from petastore.storage.ranges.client import Client
from petastore.storage.ranges.fetch import RangeFetcher
from petastore.storage.ranges.fsspec_client import FsspecClient
from petastore.storage.ranges.line import LearntLine
from petastore.storage.ranges.obstore_client import ObstoreClient, http_stores, is_usable, s3_stores
from petastore.storage.ranges.obstore_settings import http_settings, s3_settings
from petastore.storage.requests.failure_kinds import attribute

__all__ = ["has_web_requests", "open_fetcher"]


def has_web_requests(location: Location) -> bool:
    """Whether a file of a dataset is read by requests over the web: object stores, and web servers themselves."""
    store = location.store
    return store is not None and bool(attribute(store, "async_impl"))


def open_fetcher(location: Location, *, line: LearntLine | None = None) -> RangeFetcher | None:
    """What fetches ranges of the files of a dataset; None where its file system is one of Arrow's own.

    Nothing is asked yet. To be closed when it is not needed any more.

    Args:
        location: Where the dataset lies.
        line: What requests cost there, as it was learnt before.
    """
    store = location.store
    if store is None:
        return None
    by_obstore = _by_obstore(store, location.timeout_s) if is_usable() else None
    if by_obstore is None:
        return RangeFetcher(location, FsspecClient(store), line=line)
    return RangeFetcher(location, by_obstore, otherwise=FsspecClient(store), line=line)


def _by_obstore(store: Any, timeout_s: float | None) -> Client | None:
    options: Mapping[str, Any] = attribute(store, "storage_options") or {}
    # A class of somebody else's may do more than its name says.
    module, protocols = type(store).__module__, attribute(store, "protocol")
    if module == "s3fs.core" and "s3" in protocols:
        settings = s3_settings(options)
        return None if settings is None else ObstoreClient(s3_stores(settings, timeout_s))
    if module == "fsspec.implementations.http" and "http" in protocols:
        settings_of_http = http_settings(options)
        return None if settings_of_http is None else ObstoreClient(http_stores(settings_of_http, timeout_s))
    return None
