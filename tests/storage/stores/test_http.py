"""Tests of HTTP through obstore: index pages, signed URLs, forked children."""

from __future__ import annotations

import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

import petastore
from petastore.storage.stores.interface import FileVersion
from petastore.storage.stores.object_store import ObjectStore
from tests.servers.fixtures import Served

pytestmark = [pytest.mark.server, pytest.mark.leaves_running("obstore keeps its threads, fsspec its web session")]


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[str]:
    """Yield the URL of a server whose directories have index pages."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given, directory=str(tmp_path))

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()
        thread.join()


def test_http_directories_are_listed_by_index_pages(pages: str, tmp_path: Path) -> None:
    for name in ("a b.parquet", "day=1/c.parquet"):
        (tmp_path / "ds" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "ds" / name).write_bytes(b"x")
    store = ObjectStore("http", {})
    flat, deep = (
        store.get_file_info(fs.FileSelector(f"{pages}/ds", recursive=recursive, allow_not_found=True))
        for recursive in (False, True)
    )
    assert {info.path: info.is_file for info in flat} == {
        f"{pages}/ds/a%20b.parquet": True,
        f"{pages}/ds/day%3D1": False,
    }
    assert {info.path for info in deep if info.is_file} == {
        f"{pages}/ds/a%20b.parquet",
        f"{pages}/ds/day%3D1/c.parquet",
    }
    assert store.get_file_info(fs.FileSelector(f"{pages}/nothing", recursive=True, allow_not_found=True)) == []


@pytest.mark.parametrize(("first", "last"), [(100, 150), (101, 151), (100, 140), (0, 50)])
def test_http_response_with_another_range_raises(first: int, last: int) -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{last - 1}/1000")
            self.send_header("Content-Length", str(last - first))
            self.send_header("ETag", '"a"')
            self.send_header("Last-Modified", "Mon, 30 Nov 2026 00:00:00 GMT")
            self.end_headers()
            self.wfile.write(bytes(range(first, last)))

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        url, version = f"http://127.0.0.1:{serving.server_port}/x", FileVersion(1000, '"a"')
        try:
            if (first, last) == (100, 150):
                assert bytes(ObjectStore("http", {}).get(url, 100, 50, version).data) == bytes(range(100, 150))
            else:
                with pytest.raises(OSError, match=rf"Requested 100\.\.150, got {first}\.\.{last}"):
                    ObjectStore("http", {}).get(url, 100, 50, version)
        finally:
            serving.shutdown()
            thread.join()


def test_http_signed_urls_work_in_forked_children(served: Served) -> None:
    pq.write_table(pa.table({"id": [1, 2, 3]}), served.root / "signed.parquet")
    url = f"http://127.0.0.1:{served.port}/signed.parquet?sig=a%2Fb"

    def ids() -> list[int]:
        with petastore.make_reader(url, reader_pool_type="dummy", shuffle_row_groups=False) as reader:
            return [row.id for row in reader]

    assert ids() == [1, 2, 3]
    child = os.fork()
    if child == 0:
        outcome = 1
        try:
            outcome = 0 if ids() == [1, 2, 3] else 2
        finally:
            os._exit(outcome)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
