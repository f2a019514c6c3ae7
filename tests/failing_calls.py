"""Public calls that use storage, exceptions that filesystems raise, and the errors that users must get instead."""

from __future__ import annotations

import asyncio
import errno
import http.client
import socket
import ssl
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import aiohttp
import botocore.exceptions
import pyarrow as pa
import pyarrow.parquet as pq
import requests
import urllib3.exceptions
from azure.core import exceptions as azure
from fsspec.exceptions import FSTimeoutError
from multidict import CIMultiDict, CIMultiDictProxy
from pyarrow import fs
from yarl import URL

import petastore
from petastore.adapters.torch import DataLoader
from petastore.adapters.torch.map_dataset import MapDataset
from petastore.adapters.torch.reader_dataset import ReaderDataset
from petastore.errors import (
    StorageAccessError,
    StorageConnectionError,
    StorageError,
    StorageTimeoutError,
)
from petastore.indexing import SingleFieldIndexer, build_rowgroup_index, get_row_group_indexes
from petastore.interop import export, migrate
from petastore.interop.petastorm_calls import get_schema_from_dataset_url
from petastore.readers.fetches import column_bytes
from petastore.selectors import SingleIndexSelector
from petastore.storage.requests.retries import is_transient
from petastore.writers.generate import generate_metadata
from tests.failing_files import FailingFiles, OwnHandler

__all__ = ["CALLS", "EXPECTED", "Case", "check_failures", "write_datasets"]


def client_error(code: str, status: int) -> Exception:
    answer = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return botocore.exceptions.ClientError(answer, "GetObject")


class OddError(Exception):
    """Exception of a third-party filesystem whose `__str__` also fails."""

    def __str__(self) -> str:
        raise RuntimeError


_REQUEST: Any = aiohttp.RequestInfo(URL("http://host/x"), "GET", CIMultiDictProxy(CIMultiDict()))
_POOL: Any = None

Expected: TypeAlias = tuple[Callable[[], BaseException], type[BaseException]]
Case: TypeAlias = tuple[int, Expected]
"""The number of the request that fails, and its exception with the error that users must get."""

EXPECTED: list[Expected] = [
    (lambda: TimeoutError("timed out"), StorageTimeoutError),
    (lambda: OSError(errno.ETIMEDOUT, "Connection timed out"), StorageTimeoutError),
    (lambda: FSTimeoutError(), StorageTimeoutError),
    (lambda: botocore.exceptions.ReadTimeoutError(endpoint_url="http://s3"), StorageTimeoutError),
    (lambda: botocore.exceptions.ConnectTimeoutError(endpoint_url="http://s3"), StorageTimeoutError),
    (lambda: aiohttp.ServerTimeoutError(), StorageTimeoutError),
    (lambda: requests.ReadTimeout(), StorageTimeoutError),
    (lambda: ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), StorageConnectionError),
    (lambda: ConnectionResetError("reset"), StorageConnectionError),
    (lambda: ConnectionRefusedError(errno.ECONNREFUSED, "refused"), StorageConnectionError),
    (lambda: BrokenPipeError(), StorageConnectionError),
    (lambda: socket.gaierror(socket.EAI_NONAME, "Name or service not known"), StorageConnectionError),
    (lambda: ssl.SSLCertVerificationError(1, "certificate has expired"), StorageConnectionError),
    (lambda: OSError(errno.EHOSTUNREACH, "No route to host"), StorageConnectionError),
    (lambda: botocore.exceptions.EndpointConnectionError(endpoint_url="http://s3"), StorageConnectionError),
    (lambda: aiohttp.ServerDisconnectedError(), StorageConnectionError),
    (lambda: aiohttp.ClientPayloadError("cut"), StorageConnectionError),
    (lambda: requests.ConnectionError("no"), StorageConnectionError),
    (lambda: urllib3.exceptions.ProtocolError("cut"), StorageConnectionError),
    (lambda: http.client.IncompleteRead(b"", 7), StorageConnectionError),
    (lambda: asyncio.IncompleteReadError(b"", 1), StorageConnectionError),
    (lambda: azure.ServiceRequestError("no"), StorageConnectionError),
    (lambda: PermissionError(errno.EACCES, "Permission denied"), StorageAccessError),
    (lambda: botocore.exceptions.NoCredentialsError(), StorageAccessError),
    (lambda: client_error("AccessDenied", 403), StorageAccessError),
    (lambda: azure.ClientAuthenticationError("no"), StorageAccessError),
    (lambda: aiohttp.ClientResponseError(_REQUEST, (), status=403), StorageAccessError),
    (lambda: client_error("SlowDown", 503), StorageError),
    (lambda: aiohttp.ClientResponseError(_REQUEST, (), status=500), StorageError),
    (lambda: OSError(errno.ENOSPC, "No space left on device"), StorageError),
    (lambda: OSError(errno.EIO, "Input/output error"), StorageError),
    (lambda: OSError(errno.EMFILE, "Too many open files"), StorageError),
    (lambda: OSError("something"), StorageError),
    (lambda: ValueError("The HTTP server doesn't appear to support range requests"), StorageError),
    (lambda: NotImplementedError(), StorageError),
    (lambda: KeyError("Contents"), StorageError),
    (lambda: AttributeError("'NoneType' object has no attribute 'get'"), StorageError),
    (lambda: TypeError("unexpected"), StorageError),
    (lambda: RuntimeError("the client is closed"), StorageError),
    (lambda: EOFError(), StorageError),
    (lambda: StopIteration(), StorageError),
    (lambda: asyncio.CancelledError(), StorageError),
    (lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"), StorageError),
    (lambda: pa.ArrowInvalid("as if a page were damaged"), StorageError),
    (lambda: pa.ArrowNotImplementedError("no"), StorageError),
    (lambda: OddError(), StorageError),
]

NOT_MISSED = {"close what was read", "delete", "isdir"}
"""Requests whose failure may have no effect.

When a file is closed after reading, its data was read already. A file that is not deleted is never read. After
False from `isdir`, the path is checked with another request.
"""

CHANGES = {"create", "write", "close", "delete", "copy", "mkdir"}
"""Requests that are never retried, because they may have succeeded although the response was lost."""

ROWS = 40
SCHEMA = petastore.Unischema(
    "frames", [petastore.UnischemaField("id", "int64"), petastore.UnischemaField("x", "float32", (3,))]
)


def rows(count: int = ROWS) -> Iterator[dict[str, Any]]:
    return ({"id": number, "x": [number, 0, 1]} for number in range(count))


def write_datasets() -> dict[str, bytes]:
    """Return files of a dataset with an index and Petastorm metadata, of a Petastorm dataset, and of plain Parquet."""
    store = FailingFiles()
    for name in ("ours", "petastorms"):
        petastore.write_dataset(name, SCHEMA, rows(), rows_per_row_group=10, rows_per_file=20, filesystem=store)
        export(name, filesystem=store)
    build_rowgroup_index("ours", indexers=[SingleFieldIndexer("by_id", "id")], filesystem=store)
    for path in [path for path in store.files if path.startswith("petastorms/_petastore")]:
        del store.files[path]
    table = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": range(ROWS)}), table, row_group_size=10)
    for path in ("plain/day=1/a.parquet", "plain/day=2/b.parquet"):
        store.files[path] = table.getvalue().to_pybytes()
    return store.files


def read(reader: Any) -> list[Any]:
    with reader:
        return list(reader)


def loaded(reader: Any) -> None:
    with DataLoader(reader, batch_size=8) as loader:
        assert len(list(loader)) == ROWS // 8


def random_access(given: dict[str, Any]) -> None:
    dataset = MapDataset("ours", **given)
    assert dataset[ROWS - 1]["id"] == ROWS - 1


def selected(given: dict[str, Any], **what: Any) -> None:
    dataset = petastore.open_dataset("ours", **given)
    petastore.select_rows(dataset, filter_cache=False, **what)


NGRAM = petastore.NGram({0: ["id"], 1: ["id", "x"]}, delta_threshold=10, timestamp_field="id")
POOLS: dict[str, dict[str, Any]] = {"dummy": {"reader_pool_type": "dummy"}, "thread": {"workers_count": 2}}

CALLS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "open_dataset": lambda given: petastore.open_dataset("ours", **given),
    "open_dataset of Petastorm's": lambda given: petastore.open_dataset("petastorms", **given),
    "open_dataset of plain Parquet": lambda given: petastore.open_dataset("plain", **given),
    "open_dataset of a file": lambda given: petastore.open_dataset("plain/day=1/a.parquet", **given),
    "open_dataset of a list": lambda given: petastore.open_dataset(
        ["plain/day=1/a.parquet", "plain/day=2/b.parquet"], **given
    ),
    "get_schema_from_dataset_url": lambda given: get_schema_from_dataset_url("ours", **given),
    "make_reader, dummy": lambda given: read(petastore.make_reader("ours", **POOLS["dummy"], **given)),
    "make_reader, thread": lambda given: read(petastore.make_reader("ours", **POOLS["thread"], **given)),
    "make_reader, shuffled": lambda given: read(petastore.make_reader("ours", shuffle_rows=True, seed=1, **given)),
    "make_batch_reader, dummy": lambda given: read(petastore.make_batch_reader("plain", **POOLS["dummy"], **given)),
    "make_batch_reader, thread": lambda given: read(petastore.make_batch_reader("plain", **POOLS["thread"], **given)),
    "make_reader of an NGram": lambda given: read(petastore.make_reader("ours", NGRAM, **POOLS["dummy"], **given)),
    "make_reader with filters": lambda given: read(
        petastore.make_reader("ours", filters=petastore.col("id") > 25, filter_cache=False, **given)
    ),
    "make_reader with a predicate": lambda given: read(
        petastore.make_reader("ours", predicate=lambda row: row["id"] % 2 == 0, filter_cache=False, **given)
    ),
    "make_reader with a selector": lambda given: read(
        petastore.make_reader("ours", rowgroup_selector=SingleIndexSelector("by_id", [3]), **given)
    ),
    "make_mixed_reader": lambda given: read(
        petastore.make_mixed_reader(["ours", "petastorms"], [999, 1000], **POOLS["dummy"], **given)
    ),
    "select_rows": lambda given: selected(given, filters=petastore.col("id") > 25),
    "column_bytes": lambda given: column_bytes(petastore.open_dataset("plain", **given), ["id"]),
    "torch.DataLoader": lambda given: loaded(petastore.make_reader("ours", **given)),
    "torch.MapDataset": random_access,
    "torch.ReaderDataset": lambda given: list(ReaderDataset("ours", batch_size=8, **given)),
    "get_row_group_indexes": lambda given: get_row_group_indexes(petastore.open_dataset("ours", **given)),
    "build_rowgroup_index": lambda given: build_rowgroup_index(
        "ours", indexers=[SingleFieldIndexer("by_x", "id")], **given
    ),
    "write_dataset, new": lambda given: petastore.write_dataset("new", SCHEMA, rows(8), **given),
    "write_dataset, append": lambda given: petastore.write_dataset("ours", SCHEMA, rows(8), mode="append", **given),
    "write_dataset, overwrite": lambda given: petastore.write_dataset(
        "ours", SCHEMA, rows(8), mode="overwrite", **given
    ),
    "generate_metadata": lambda given: generate_metadata("plain", **given),
    "migrate": lambda given: migrate("petastorms", **given),
    "export": lambda given: export("ours", **given),
}


def given_by(store: FailingFiles, kind: str) -> dict[str, Any]:
    return {"filesystem": store if kind == "fsspec" else fs.PyFileSystem(OwnHandler(store))}


def error_of(call: Callable[[dict[str, Any]], Any], given: dict[str, Any]) -> BaseException | None:
    """Return the exception that a call raises, or None if it succeeds."""
    try:
        call(given)
    except BaseException as problem:  # noqa: BLE001 - the caller checks the type
        return problem
    return None


def defect_of(found: BaseException | None, expected: type[BaseException], store: FailingFiles) -> str:
    """Return a description of what is wrong with an error, or an empty text if it is as expected."""
    if found is None:
        may_pass = is_transient(store.make()) and not store.goes_on
        missed = set(store.raised) - NOT_MISSED
        missed = missed & CHANGES if may_pass else missed
        return f"nobody was told of {missed}" if missed else ""
    if type(found) is not expected:
        return f"{type(found).__name__} instead of {expected.__name__}: {found}"
    if found.__cause__ is not None or found.__context__ is not None:
        return f"it is chained to {found.__cause__ or found.__context__!r}"
    return ""


def check_failures(name: str, kind: str, written: dict[str, bytes], cases: Callable[[int], Iterable[Case]]) -> None:
    """Run a public call once for each case, and compare the error with the expected one.

    Args:
        name: One of `CALLS`.
        kind: Kind of filesystem: `"fsspec"` or `"own handler"` (of pyarrow).
        written: Files of the filesystem, by path.
        cases: Function that returns the cases for the number of requests that the call makes. In every second case, all
            requests after the first failing one fail, too.
    """
    store, call = FailingFiles(), CALLS[name]
    given = given_by(store, kind)
    store.files = dict(written)
    assert error_of(call, given) is None
    count = len(store.asked)
    assert count
    defects, runs = [], 0
    for number, (at, (make, expected)) in enumerate(cases(count)):
        store.files = dict(written)
        store.fail(at, make, goes_on=number % 2 == 1)
        problem = error_of(call, given)
        defect = defect_of(problem, expected, store)
        if problem is not None:
            traceback.clear_frames(problem.__traceback__)  # frames keep references to local variables
        if not store.are_closed(60):
            defect = defect or f"{len(store.open_files)} files are left open"
        if defect:
            defects.append(f"request {at} ({store.raised[:1]}) raises {make()!r:.60}: {defect}")
        store.open_files.clear()
        store.heal()
        runs += 1
    assert runs
    assert not defects, "\n".join(defects)
