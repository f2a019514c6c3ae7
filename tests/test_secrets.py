"""Tests of secrets: credentials in URLs and storage_options are redacted in errors, logs, reprs and pickles."""

from __future__ import annotations

import contextlib
import copy
import gc
import http.server
import io
import logging
import pickle
import re
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.context import set_spawning_popen
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.registry import _registry
from pyarrow import fs

import petastore
from petastore.errors import PetastoreError, StorageAccessError
from petastore.storage.files.file_systems import filesystem_and_path
from petastore.storage.files.location import Location, open_location
from petastore.writers.generate import generate_metadata
from tests.failing_files import FailingFiles

SECRET = "hush-0123456789"  # noqa: S105 - it is none
SCHEMA = petastore.Unischema("frames", [petastore.UnischemaField("id", "int64")])


class TalkativeFiles(FailingFiles):
    """Filesystem whose errors contain the credentials that it was created with."""

    protocol = "talkative"
    kept: dict[str, bytes]

    def __init__(self, key: str = "", headers: Any = None, **_more: Any) -> None:
        super().__init__()
        self.storage_options = {"key": key, "headers": headers}
        self.key = key
        self.files = dict(TalkativeFiles.kept)

    def leak(self, at: int | None) -> None:
        self.fails_at, self.goes_on = at, True
        self.make = self._leaking

    def _leaking(self) -> BaseException:
        inner = PermissionError(f"{self.key} was sent to https://user:{self.key}@host/x?sig={self.key}")
        outer = OSError(f"could not get talkative://{self.key}@bucket/x#{self.key}: refused {self.storage_options}")
        outer.__cause__ = inner
        outer.__context__ = ValueError(repr(self.key))
        return outer


@pytest.fixture
def _talkative() -> Iterator[None]:
    store = FailingFiles()
    petastore.write_dataset("bucket/frames", SCHEMA, ({"id": n} for n in range(20)), filesystem=store)
    TalkativeFiles.kept = store.files
    fsspec.register_implementation("talkative", TalkativeFiles, clobber=True)
    yield
    del _registry["talkative"]


def everything(problem: BaseException | None) -> str:
    """Return all text that an exception can print, including chained exceptions that are hidden."""
    if problem is None:
        return ""
    found = [str(problem), repr(problem), repr(problem.args), repr(vars(problem))]
    found += traceback.format_exception(problem)
    for behind in (problem.__cause__, problem.__context__):
        found.append(everything(behind))
    return "\n".join(found)


def seen_of(call: Callable[[], Any], caplog: pytest.LogCaptureFixture) -> str:
    """Return everything that a call shows: its result, errors, output, logs and warnings."""
    output = io.StringIO()
    problem: BaseException | None = None
    result: Any = None
    with (
        caplog.at_level(logging.DEBUG, logger="petastore"),
        warnings.catch_warnings(record=True) as warned,
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(output),
    ):
        warnings.simplefilter("always")
        try:
            result = call()
        except PetastoreError as caught:
            problem = caught
    shown = [everything(problem), repr(result), str(result), output.getvalue(), caplog.text]
    return "\n".join([*shown, *(str(warning.message) for warning in warned)])


OPTIONS = {"key": SECRET, "headers": {"Authorization": f"Bearer {SECRET}"}}


def read(url: Any, **more: Any) -> str:
    with petastore.make_reader(url, **more) as reader:
        found = f"{reader!r} {reader.dataset!r} {reader.state_dict()} {reader.plan.explain(8)}"
        return found + repr([row.id for row in reader])


@pytest.mark.usefixtures("_talkative")
@pytest.mark.parametrize("at", [None, 0, 1, 2, 4, 6, 8, 9, 11])
def test_filesystem_error_is_redacted(
    at: int | None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TalkativeFiles, "__init__", made_to_leak(at))
    url = "talkative://bucket/frames"
    calls: list[Callable[[], Any]] = [
        lambda: petastore.open_dataset(url, storage_options=OPTIONS),
        lambda: read(url, storage_options=OPTIONS),
        lambda: read(url, storage_options=OPTIONS, reader_pool_type="dummy"),
        lambda: petastore.write_dataset(url, SCHEMA, [{"id": 1}], mode="append", storage_options=OPTIONS),
        lambda: petastore.write_dataset(url, SCHEMA, [{"id": 1}], mode="overwrite", storage_options=OPTIONS),
        lambda: generate_metadata(url, storage_options=OPTIONS),
        lambda: petastore.make_mixed_reader([{"dataset_url": url, "storage_options": OPTIONS}], [1]),
        lambda: petastore.make_mixed_reader({"dataset_url": url, "storage_options": OPTIONS}, [1]),  # type: ignore[arg-type]
    ]
    for call in calls:
        seen = seen_of(call, caplog)
        assert seen
        assert not [line for line in seen.splitlines() if SECRET in line]


def made_to_leak(at: int | None) -> Callable[..., None]:
    original = TalkativeFiles.__init__

    def made(self: TalkativeFiles, **options: Any) -> None:
        original(self, **options)
        self.leak(at)

    return made


URLS = [
    f"http://{SECRET}@127.0.0.1:9/a.parquet", f"http://me:{SECRET}@127.0.0.1:9/a.parquet",
    f"http://127.0.0.1:9/a.parquet?sig={SECRET}", f"http://127.0.0.1:9/a.parquet#{SECRET}",
    f"file://u:{SECRET}@/x", f"file:///nowhere/x?token={SECRET}", f"memory://me:{SECRET}@bucket/x",
    f"memory://bucket/x?sig={SECRET}", f"simplecache::http://me:{SECRET}@127.0.0.1:9/a.parquet",
    f"simplecache::http://127.0.0.1:9/a.parquet?sig={SECRET}", f"nonsense://{SECRET}@host/x?sig={SECRET}",
    f"s3://{SECRET}@bucket/x\0", f"http://me:{SECRET}@127.0.0.1:9/a b?x={SECRET} {SECRET}",
]  # fmt: skip


@pytest.mark.leaves_running("fsspec keeps its web session")
@pytest.mark.parametrize("url", URLS)
def test_url_secrets_are_not_shown(url: str, caplog: pytest.LogCaptureFixture) -> None:
    second = url.replace("a.parquet", "b.parquet")
    for given in (url, [url, second], [url, url], [url, f"s3://me:{SECRET}@other/x"], url.encode(), {url: 1}):
        calls: list[Callable[[], Any]] = [
            lambda given=given: open_location(given),  # type: ignore[misc]
            lambda given=given: petastore.open_dataset(given, storage_timeout=0.5),  # type: ignore[misc]
            lambda given=given: petastore.write_dataset(given, SCHEMA, [{"id": 1}], mode="append"),  # type: ignore[misc]
        ]
        for call in calls[: 2 if "memory" in url else 3]:
            seen = seen_of(call, caplog)
            assert not [line for line in seen.splitlines() if SECRET in line]


@pytest.mark.usefixtures("real_backoff")  # so that the timeout passes before the last attempt
@pytest.mark.leaves_running("fsspec keeps its web session")
@pytest.mark.parametrize("url", [url for url in URLS if "127.0.0.1" in url])
def test_url_secrets_are_not_shown_after_a_timeout(url: str, caplog: pytest.LogCaptureFixture) -> None:
    second = url.replace("a.parquet", "b.parquet")
    for given in (url, [url, second]):
        seen = seen_of(lambda given=given: petastore.open_dataset(given, storage_timeout=0.05), caplog)  # type: ignore[misc]
        assert not [line for line in seen.splitlines() if SECRET in line]


def as_a_child_has_it(thing: Any) -> Any:
    """Return a pickle round trip as for a child process that `multiprocessing` spawns."""
    starting: Any = object()
    set_spawning_popen(starting)
    try:
        pickled = pickle.dumps(thing)
    finally:
        set_spawning_popen(None)
    return pickle.loads(pickled)  # noqa: S301 - our own


def keys_in(filesystem: Any) -> str:
    store = filesystem.fs
    return repr((store.storage_options, store.storage_args))


@pytest.mark.usefixtures("_talkative")
def test_pickles_contain_credentials_only_for_child_processes() -> None:
    dataset = petastore.open_dataset("talkative://bucket/frames", storage_options={**OPTIONS, "headers": {"x": SECRET}})
    assert SECRET in keys_in(dataset.location.filesystem)
    pickled = pickle.dumps(dataset)
    assert SECRET.encode() not in pickled
    without = pickle.loads(pickled).location  # noqa: S301 - our own
    assert SECRET not in keys_in(without.filesystem)
    assert without.url == dataset.location.url
    assert SECRET in keys_in(as_a_child_has_it(dataset).location.filesystem)
    assert copy.deepcopy(dataset.location) is dataset.location


def unopened(url: str, options: dict[str, Any]) -> Location:
    """Return a location without checking that a dataset exists there."""
    filesystem, path = filesystem_and_path(url, options, None)
    return Location(url, filesystem, path)


@pytest.mark.parametrize(
    ("url", "options", "kept"),
    [
        ("s3://b/x", {"key": "AKIA", "secret": SECRET, "endpoint_url": "http://127.0.0.1:9"}, "http://127.0.0.1:9"),
        ("s3://b/x", {"key": "AKIA", "secret": SECRET, "client_kwargs": {"region_name": "eu-west-9"}}, "eu-west-9"),
        ("s3://b/x", {"anon": True, "profile": "work"}, "work"),
        ("gs://b/x", {"token": "anon", "project": "my-project"}, "my-project"),
        ("http://127.0.0.1:9/x", {"client_kwargs": {"headers": {"Authorization": SECRET}}}, "headers"),
    ],
)
def test_storage_options_without_secrets_are_pickled(url: str, options: dict[str, Any], kept: str) -> None:
    pickled = pickle.dumps(unopened(url, options))
    assert SECRET.encode() not in pickled
    assert kept.encode() in pickle.dumps(pickle.loads(pickled))  # noqa: S301 - our own


def test_location_without_credentials_raises_when_unpickled() -> None:
    place = f"AccountName=me;AccountKey={SECRET};EndpointSuffix=core.windows.net"
    pickled = pickle.dumps(unopened("abfs://b/x", {"connection_string": place}))
    assert SECRET.encode() not in pickled
    with pytest.raises(
        StorageAccessError,
        match=r"a pickled dataset does not contain the credentials of its file system \(connection_string\)",
    ):
        pickle.loads(pickled)  # noqa: S301 - our own


@pytest.mark.leaves_running("Arrow keeps its client of S3")
def test_pyarrow_filesystem_credentials_are_not_pickled() -> None:
    filesystem = fs.S3FileSystem(access_key="AKIA", secret_key=SECRET, region="eu-west-9")
    pickled = pickle.dumps(Location("s3://b/x", filesystem, "b/x"))
    assert SECRET.encode() not in pickled
    assert pickle.loads(pickled).filesystem.region == "eu-west-9"  # noqa: S301 - our own


class Signed(http.server.BaseHTTPRequestHandler):
    """HTTP handler that serves files of a directory, with range requests, only for URLs with the signature."""

    root: Path

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if query != f"sig={SECRET}/x=":
            self.send_error(403)
            return
        data = (self.root / path.lstrip("/")).read_bytes()
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        start, stop = (int(asked[1]), min(int(asked[2]) + 1, len(data))) if asked else (0, len(data))
        self.send_response(206 if asked else 200)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(stop - start))
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data[start:stop])

    def log_message(self, *args: Any) -> None:
        """Print no log."""


@pytest.mark.leaves_running("fsspec keeps its web session")
def test_signed_urls_are_read_without_showing_signatures(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name, first in (("a.parquet", 0), ("b.parquet", 50)):
        pq.write_table(pa.table({"id": range(first, first + 50)}), tmp_path / name, row_group_size=25)
    here = type("Here", (Signed,), {"root": tmp_path})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), here) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        try:
            host = f"http://127.0.0.1:{serving.server_port}"
            urls = [f"{host}/{name}?sig={SECRET}/x=" for name in ("a.parquet", "b.parquet")]
            for given, count in ((urls, 100), (urls[0], 50)):
                dataset = petastore.open_dataset(given)
                assert dataset.inventory.num_rows == count
                assert [file.path for file in dataset.inventory.files] == ["a.parquet", "b.parquet"][: count // 50]
                again = as_a_child_has_it(dataset.location)
                assert SECRET not in repr(pickle.dumps(dataset))
                assert petastore.open_dataset([again.join(path) for path in again.paths]).inventory == dataset.inventory
                with petastore.make_reader(given, shuffle_row_groups=False) as reader:
                    assert [row.id for row in reader] == list(range(count))
                assert SECRET not in seen_of(lambda given=given: read(given), caplog)  # type: ignore[misc]
            (tmp_path / "b.parquet").unlink()
            seen = seen_of(lambda: read(urls), caplog)
            assert "b.parquet" in seen
            assert SECRET not in seen
            assert SECRET not in seen_of(lambda: read([url.replace("sig", "gis") for url in urls]), caplog)
        finally:
            serving.shutdown()
            thread.join()
    fsspec.filesystem("http").clear_instance_cache()
    gc.collect()
