"""Whole objects by obstore: what there is in a bucket, and the small ones of them; said in fsspec's words."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from petastore.storage.obstores.client import ObstoreClient, obstore_here
from petastore.storage.obstores.kept_stores import Store
from petastore.storage.requests.client import UnsuitedError

__all__ = ["Objects"]

Info = dict[str, Any]

_HIDDEN = (".", "_")
"""How names begin of what is no data, such as the empty files `_SUCCESS` and `.lock`."""


class Objects:
    """Asks obstore once each time; what goes wrong is raised as by its client.

    Args:
        client: Makes the requests.
    """

    def __init__(self, client: ObstoreClient) -> None:
        self._client = client

    def one(self, path: str) -> Info:
        """What there is to know of an object.

        Raises:
            FileNotFoundError: There is none, or no such bucket.
        """

        def ask(store: Store, key: str) -> Info:
            return _fsspec_info(path, obstore_here().head(store, _named(key)))

        return self._client.asked(path, ask)

    def has_some_below(self, path: str) -> bool:
        """Whether the names of objects begin with that of a directory.

        Raises:
            NoBucketError: There is no such bucket.
        """

        def ask(store: Store, key: str) -> bool:
            return any(obstore_here().list(store, _named(key), chunk_size=1))

        return self._client.asked(path, ask)

    def below(self, path: str, *, recursive: bool) -> dict[str, Info]:
        """What is below a directory, by paths: objects, and the directories that their names tell of.

        Raises:
            NoBucketError: There is no such bucket.
            UnsuitedError: There may be marks of directories among it.
        """

        def ask(store: Store, key: str) -> dict[str, Info]:
            bucket = path[: len(path) - len(key)]
            if recursive:
                listed = [one for page in obstore_here().list(store, _named(key), chunk_size=1000) for one in page]
                files = {bucket + one["path"]: one for one in listed}
                directories = _between(path, files)
            else:
                level = obstore_here().list_with_delimiter(store, _named(key))
                files = {bucket + one["path"]: one for one in level["objects"]}
                directories = {bucket + one for one in level["common_prefixes"]}
            return {**{one: _directory(one) for one in directories}, **_files(files, directories)}

        return self._client.asked(path, ask)

    def whole(self, path: str, max_bytes: int) -> tuple[int, bytes]:
        """How many bytes an object has, and these; none where they are more than so many.

        Raises:
            FileNotFoundError: There is none.
        """

        def ask(store: Store, key: str) -> tuple[int, bytes]:
            result = obstore_here().get(store, _named(key))
            size = int(result.meta["size"])
            return size, _all_of(result, size) if size <= max_bytes else b""

        return self._client.asked(path, ask)

    def part(self, path: str, start: int, end: int) -> bytes:
        """Some bytes of an object; fewer where it ends before.

        Raises:
            FileNotFoundError: There is none.
        """

        def ask(store: Store, key: str) -> bytes:
            result = obstore_here().get(store, _named(key), options={"range": (start, end)})
            return _all_of(result, result.range[1] - result.range[0])

        return self._client.asked(path, ask)


def _named(key: str) -> str:
    if not key or key.endswith("/"):
        raise UnsuitedError("a bucket is no object")
    return key


def _all_of(result: Any, length: int) -> bytes:
    data = bytes(result.bytes())
    if len(data) != length:
        raise ConnectionError(f"{length:,} bytes were to come, and {len(data):,} did")
    return data


def _files(found: Mapping[str, Mapping[str, Any]], directories: Collection[str]) -> dict[str, Info]:
    """Those of objects that are files; the mark of a directory is an empty one, and obstore leaves out its last `/`."""
    files = {name: meta for name, meta in found.items() if meta["size"] or name not in directories}
    for name, meta in files.items():
        if not meta["size"] and not name.rpartition("/")[2].startswith(_HIDDEN):
            raise UnsuitedError("it may be the mark of a directory in which there is nothing")
    return {name: _fsspec_info(name, meta) for name, meta in files.items()}


def _fsspec_info(path: str, meta: Mapping[str, Any]) -> Info:
    told = {"ETag": meta["e_tag"] or "", "LastModified": meta["last_modified"]}
    return {"name": path, "type": "file", "size": int(meta["size"]), **told}


def _directory(path: str) -> Info:
    return {"name": path, "type": "directory", "size": 0}


def _between(path: str, files: Iterable[str]) -> set[str]:
    """The directories between one and files below it."""
    found: set[str] = set()
    for name in files:
        around = name.rpartition("/")[0]
        while len(around) > len(path) and around not in found:
            found.add(around)
            around = around.rpartition("/")[0]
    return found
