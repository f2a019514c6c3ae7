"""Stores of obstore's, each made when it is first asked for, and the limits of its requests."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias, TypedDict

from petastore.forks import made_anew_in_children
from petastore.storage.obstores.credentials import Credentials

__all__ = ["NO_MATTER", "KeptStores", "Setting", "Store", "Stores", "of_containers", "requested_once"]

# They say how fsspec lists, caches and writes; ranges of bytes are none of that.
NO_MATTER = frozenset({
    "cache_regions", "default_block_size", "default_cache_type", "default_fill_cache", "fixed_upload_size",
    "listings_expiry_time", "max_concurrency", "max_paths", "skip_instance_cache", "use_listings_cache", "block_size",
    "cache_type", "cache_options", "size_policy", "simple_links", "same_scheme", "s3_additional_kwargs", "acl",
})  # fmt: skip

_CONNECT_S, _READ_S = 10.0, 30.0

Setting: TypeAlias = str | bool | Mapping[str, str]
"""What obstore is told."""

Store = Any


class Stores(Protocol):
    """Where files lie, for obstore. Thread-safe."""

    def __call__(self, path: str) -> tuple[Store, str]:
        """The store of a path of the file system, and the path in it."""

    def refused(self, path: str, store: Store) -> bool:
        """Whether it may help to ask once more, since what signs requests is other by now.

        Args:
            path: Where somebody was refused.
            store: Who asked.
        """


class KeptStores:
    """Stores by name. Thread-safe.

    Args:
        make: Makes the store of a name.
    """

    def __init__(self, make: Callable[[str], Store]) -> None:
        self._make = make
        self._stores: dict[str, Store] = {}
        self.make_anew()
        made_anew_in_children(self)

    def make_anew(self) -> None:
        """Has a lock that nobody holds."""
        self._lock = threading.Lock()

    def __call__(self, name: str) -> Store:
        """The store of a name."""
        with self._lock:
            store = self._stores.get(name)
            if store is None:
                store = self._stores[name] = self._make(name)
        return store

    def forget(self) -> None:
        """Makes all of them anew when they are asked for: obstore keeps what signs requests."""
        with self._lock:
            self._stores.clear()


def of_containers(make: Callable[[str], Store], credentials: Credentials | None = None) -> Stores:
    """Stores of buckets and containers, for paths such as `bucket/a/b.parquet`.

    Args:
        make: Makes the store of a bucket.
        credentials: What signs requests, if it has to be looked for; it is, before each.
    """
    return _Containers(KeptStores(make), credentials)


class _Containers:
    def __init__(self, kept: KeptStores, credentials: Credentials | None) -> None:
        self._kept, self._credentials = kept, credentials

    def __call__(self, path: str) -> tuple[Store, str]:
        if self._credentials is not None:
            self._credentials.look_again()
        container, _, key = path.partition("/")
        return self._kept(container), key

    def refused(self, path: str, store: Store) -> bool:
        if self._credentials is None:
            return False
        if self._credentials.look_anew():
            self._kept.forget()
        return self(path)[0] is not store


class StoreArguments(TypedDict):
    """Arguments of each of obstore's stores."""

    client_options: Any
    """For its HTTP client."""

    retry_config: Any
    """How often it tries again."""


def requested_once(client_options: Mapping[str, Setting], timeout_s: float | None) -> StoreArguments:
    """Arguments of a store: requests that are not tried again, and that end while there is time for another one.

    Args:
        client_options: For its HTTP client.
        timeout_s: Seconds that a request may take; None is as long as bytes come.
    """
    whole = timeout_s or 86400.0
    times = {"timeout": whole, "connect_timeout": min(_CONNECT_S, whole / 4), "read_timeout": min(_READ_S, whole / 4)}
    limits = {name: dt.timedelta(seconds=value) for name, value in times.items()}
    return {"client_options": {**client_options, **limits}, "retry_config": {"max_retries": 0}}
