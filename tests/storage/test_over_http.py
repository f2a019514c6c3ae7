"""Tests of a dataset on a real HTTP server: byte ranges, and petastore's own errors."""

from __future__ import annotations

import http.server
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore.errors import DatasetNotFoundError, MetadataError
from petastore.storage.files.listing import list_data_files
from petastore.storage.files.location import open_location
from petastore.storage.footers.footer_cache import FooterCache
from petastore.storage.footers.footers import read_footer, read_footers
from petastore.storage.row_groups.row_group import read_row_group


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves the files of one directory, whole or by one range."""

    root: Path
    asked: list[tuple[str, str]]

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        path = self.root / self.path.lstrip("/")
        if not path.is_file():
            self.send_error(404)
            return
        data = path.read_bytes()
        asked = re.fullmatch(r"bytes=(\d*)-(\d+)", self.headers.get("Range", ""))
        start = 0 if asked is None else int(asked[1]) if asked[1] else max(len(data) - int(asked[2]), 0)
        part = data if asked is None else data[start : int(asked[2]) + 1] if asked[1] else data[start:]
        self.send_response(206 if asked else 200)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(part)))
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{start + len(part) - 1}/{len(data)}")
        self.end_headers()
        if body:
            self.asked.append((self.path, self.headers.get("Range", "all")))
            self.wfile.write(part)

    def log_message(self, *args: Any) -> None:
        """Log nothing."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, type[Handler]]]:
    class Here(Handler):
        root = tmp_path
        asked: list[tuple[str, str]] = []  # noqa: RUF012 - one a test

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Here) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{serving.server_port}", Here
        serving.shutdown()
        thread.join()
    fsspec.filesystem("http").clear_instance_cache()


@pytest.mark.leaves_running("fsspec keeps its web session")
def test_http_files_are_read_by_ranges(tmp_path: Path, server: tuple[str, type[Handler]]) -> None:
    url, handler = server
    # The files are larger than the tail that is read for the footer, so a range is less than the file.
    wide = pa.table({f"c{number}": list(range(1000)) for number in range(50)})
    for name in ("a.parquet", "b.parquet"):
        pq.write_table(wide, tmp_path / name, row_group_size=500, compression="none")
    location = open_location([f"{url}/a.parquet", f"{url}/b.parquet"])
    assert location.url == url
    paths = list_data_files(location)
    assert paths == ["a.parquet", "b.parquet"]
    footers = [read_footer(location, path) for path in paths]
    assert [footer.groups["rows"].tolist() for footer in footers] == [[500, 500]] * 2
    # One range request per footer, for the end of the file; before that fsspec sends a HEAD request.
    assert [path for path, asked in handler.asked if asked.startswith("bytes=")] == ["/a.parquet", "/b.parquet"]
    table = read_row_group(location, footers[1].file, 1, ["c7"], footers=FooterCache())
    assert table.column("c7").to_pylist() == list(range(500, 1000))


@pytest.mark.leaves_running("fsspec keeps its web session")
def test_missing_file_or_non_parquet_raises_a_petastore_error(
    tmp_path: Path, server: tuple[str, type[Handler]]
) -> None:
    url, _ = server
    (tmp_path / "page.html").write_text("<html>no parquet at all</html>")
    with pytest.raises(DatasetNotFoundError, match="there is nothing at"):
        list_data_files(open_location(f"{url}/missing.parquet"))
    location = open_location(f"{url}/page.html")
    assert list_data_files(location) == ["page.html"]
    with pytest.raises(MetadataError, match=r"page\.html is not a Parquet file: it must end with b'PAR1', got b'tml>'"):
        read_footers(location, ["page.html"])
