"""Who fetches ranges of a dataset's files: obstore where it can, and elsewhere fsspec, or Arrow's own file system."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from petastore.storage.files.location import Location
from petastore.storage.obstores.azure import azure_settings, azure_stores
from petastore.storage.obstores.client import ObstoreClient, is_usable
from petastore.storage.obstores.google import google_settings, google_stores
from petastore.storage.obstores.s3 import s3_settings, s3_stores
from petastore.storage.obstores.web import http_settings, http_stores
from petastore.storage.ranges.arrow_client import ArrowClient
from petastore.storage.ranges.fetch import RangeFetcher
from petastore.storage.ranges.fsspec_client import FsspecClient
from petastore.storage.ranges.request_counts import RequestCounter
from petastore.storage.requests.client import Client
from petastore.storage.requests.failure_kinds import attribute

__all__ = ["open_fetcher"]


def open_fetcher(location: Location, *, counter: RequestCounter | None = None) -> RangeFetcher:
    """What fetches ranges of the files of a dataset.

    Nothing is asked yet. To be closed when it is not needed any more.

    Args:
        location: Where the dataset lies.
        counter: Counts requests, with those of other fetchers.
    """
    store = location.store
    if store is None:
        return RangeFetcher(location, ArrowClient(location.filesystem), counter=counter)
    by_obstore = _by_obstore(store, location.timeout_s) if is_usable() else None
    if by_obstore is None:
        return RangeFetcher(location, FsspecClient(store), counter=counter)
    return RangeFetcher(location, by_obstore, fallback=FsspecClient(store), counter=counter)


def _by_obstore(store: Any, timeout_s: float | None) -> Client | None:
    options: Mapping[str, Any] = attribute(store, "storage_options") or {}
    # A class of somebody else's may do more than its name says.
    make = _CLIENTS.get(type(store).__module__)
    return None if make is None else make(store, options, timeout_s)


def _of_s3(store: Any, options: Mapping[str, Any], timeout_s: float | None) -> Client | None:
    settings = s3_settings(options) if "s3" in store.protocol else None
    return None if settings is None else ObstoreClient(s3_stores(settings, timeout_s))


def _of_ours(store: Any, _: Mapping[str, Any], timeout_s: float | None) -> Client | None:
    client: Client | None = store.client(timeout_s)
    return client


def _of_google(store: Any, options: Mapping[str, Any], timeout_s: float | None) -> Client | None:
    endpoint = attribute(store, "_location")
    if endpoint is None or attribute(store, "_use_client_cert"):
        return None
    settings = google_settings(options, endpoint)
    if settings is None:
        return None
    return ObstoreClient(google_stores(settings, timeout_s, attribute(store, "credentials")), by_generation=True)


def _of_azure(store: Any, options: Mapping[str, Any], timeout_s: float | None) -> Client | None:
    settings = azure_settings(options, store)

    def wait_for(answer: Any) -> Any:
        from fsspec.asyn import sync

        async def awaited() -> Any:
            return await answer

        return sync(store.loop, awaited)

    return None if settings is None else ObstoreClient(azure_stores(settings, timeout_s, wait_for))


def _of_web(store: Any, options: Mapping[str, Any], timeout_s: float | None) -> Client | None:
    settings = http_settings(options) if "http" in store.protocol else None
    return None if settings is None else ObstoreClient(http_stores(settings, timeout_s))


_CLIENTS: dict[str, Callable[[Any, Mapping[str, Any], float | None], Client | None]] = {
    "petastore.storage.files.s3": _of_ours,
    "s3fs.core": _of_s3,
    "gcsfs.core": _of_google,
    "gcsfs.extended_gcsfs": _of_google,
    "adlfs.spec": _of_azure,
    "fsspec.implementations.http": _of_web,
}
"""By the module of the file system: who makes a client that asks the same storage in the same way."""
