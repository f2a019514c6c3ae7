"""Tests of glob patterns: same matches on every filesystem; partition columns do not depend on the matches."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from pyarrow import fs

from petastore import make_batch_reader, open_dataset
from petastore.errors import DatasetNotFoundError, InvalidArgumentError
from petastore.storage.files.location import Location, open_location
from tests.storage.conftest import Put

FILES = [
    "_old/part-0.parquet",
    "day=1/part-0.parquet",
    "day=1/part-10.parquet",
    "day=1/.part-2.parquet",
    "day=1/_part-3.parquet",
    "day=2/part-1.parquet",
    "day=2/hour=7/part-5.parquet",
    "out.parquet/part-6.parquet",
    "part-7.parquet",
    "notes.txt",
]


@pytest.fixture(params=["file", "memory", "pyarrow", "memory as filesystem", "pyarrow, no local one"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the URL of the folder with `FILES`, and the filesystem to pass with it."""
    subtree = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    memory = MemoryFileSystem()
    url, given = {
        "file": (f"file://{tmp_path}/b/ds", None),
        "memory": ("memory://b/ds", None),
        "pyarrow": ("s3://b/ds", subtree),
        "memory as filesystem": ("b/ds", memory),
        "pyarrow, no local one": ("b/ds", fs.PyFileSystem(fs.FSSpecHandler(memory))),
    }[request.param]
    place = open_location(url, filesystem=given)
    for path in FILES:
        full = place.join(path)
        place.filesystem.create_dir(full.rpartition("/")[0], recursive=True)
        with place.filesystem.open_output_stream(full) as stream:
            stream.write(b"x")
    yield url, given
    if not request.param.startswith(("file", "pyarrow")) or "," in request.param:
        place.filesystem.delete_dir("/b")


PATTERNS = {
    "*": ["day=1", "day=2", "notes.txt", "out.parquet", "part-7.parquet"],
    "day=*": ["day=1", "day=2"],
    "day=?": ["day=1", "day=2"],
    "day=[!2]/": ["day=1"],
    "day=*/part-?.parquet": ["day=1/part-0.parquet", "day=2/part-1.parquet"],
    "*/part-1*": ["day=1/part-10.parquet", "day=2/part-1.parquet"],
    "day=1/_*": ["_part-3.parquet"],
    "_*/*.parquet": ["_old/part-0.parquet"],
    "*.parquet": ["out.parquet", "part-7.parquet"],
    "**/*.parquet": [
        "day=1/part-0.parquet",
        "day=1/part-10.parquet",
        "day=2/hour=7/part-5.parquet",
        "day=2/part-1.parquet",
        "out.parquet",
        "part-7.parquet",
    ],
    "day=2/**": ["hour=7", "part-1.parquet"],
    "**/hour=*/*": ["day=2/hour=7/part-5.parquet"],
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_pattern_matches_the_same_files_on_every_filesystem(base: tuple[str, Any], pattern: str) -> None:
    url, filesystem = base
    found = open_location(f"{url}/{pattern}", filesystem=filesystem, patterns=True)
    assert sorted(found.paths or ()) == PATTERNS[pattern]
    assert found.matched == frozenset(PATTERNS[pattern])


def test_glob_root_is_the_directory_before_the_first_wildcard(base: tuple[str, Any]) -> None:
    url, filesystem = base
    root = open_location(url, filesystem=filesystem).root
    at = partial(open_location, filesystem=filesystem, patterns=True)
    assert at(f"{url}/day=1/part-1*").root == f"{root}/day=1"
    assert at(f"{url}/*=1/part-1*").root == root
    many = at([f"{url}/day=1/*0.parquet", f"{url}/day=2/part-?.parquet", f"{url}/day=2/hour=7"])
    assert (many.root, many.url.rstrip("/").endswith("/ds")) == (root, True)
    assert many.paths == ("day=2/hour=7", "day=1/part-0.parquet", "day=1/part-10.parquet", "day=2/part-1.parquet")
    assert many.matched == frozenset(many.paths[1:])


def test_glob_without_matches_raises(base: tuple[str, Any]) -> None:
    url, filesystem = base
    for pattern in ("nothing-*", "day=[3-9]/*", "gone/**/*.parquet", "day=1/part-0.parquet/*"):
        with pytest.raises(DatasetNotFoundError, match="the pattern must match at least one file, got none") as refused:
            open_dataset(f"{url}/{pattern}", filesystem=filesystem)
        assert pattern in str(refused.value) or "?" in pattern
    with pytest.raises(DatasetNotFoundError, match="the pattern must match at least one file, got none"):
        open_dataset([f"{url}/day=*", f"{url}/nothing-*"], filesystem=filesystem)


def test_invalid_pattern_raises(base: tuple[str, Any]) -> None:
    url, filesystem = base
    with pytest.raises(
        InvalidArgumentError,
        match=r"the URL must have a valid pattern, got \*\*\.parquet: Invalid pattern: '\*\*' can only be an",
    ):
        open_dataset(f"{url}/**.parquet", filesystem=filesystem)


def test_existing_path_with_a_wildcard_is_not_a_glob(location: Location, put: Put) -> None:
    for name in ("run[1]", "run1", "what?", "whats"):
        put(f"{name}/a.parquet", {"id": [len(name)]})
        put(f"{name}/b.parquet", {"id": [len(name)]})
    put("*.parquet", {"id": [0]})
    put("other.parquet", {"id": [1]})
    for path, count in {"run[1]": 2, "run[1]/*.parquet": 2, "run[1]/a*": 1, "what?": 2, "*.parquet": 1}.items():
        dataset = open_dataset(f"{location.url}/{path}")
        assert len(dataset.inventory.files) == count
        assert all(f"/{path.partition('/')[0]}" in full for full in dataset.paths)
    assert open_dataset(f"{location.url}/run[12]").paths == [location.join(f"run1/{name}.parquet") for name in "ab"]
    assert len(open_dataset([f"{location.url}/run[1]", f"{location.url}/*s"]).paths) == 4


def test_partition_columns_do_not_depend_on_matched_files(location: Location, put: Put) -> None:
    for day in ("1", "2"):
        for name in ("x1", "y1"):
            put(f"day={day}/{name}.parquet", {"id": [int(day)]})
    for pattern, days in {
        "day=*/x*": [1, 2],
        "day=[2]/*": [2, 2],
        "*/x1.parquet": [1, 2],
    }.items():
        with make_batch_reader(f"{location.url}/{pattern}", shuffle_row_groups=False) as reader:
            assert [day for batch in reader for day in batch.day.tolist()] == days
    assert open_dataset(f"{location.url}/day=1/x*").partition_names == ()
    assert open_dataset([f"{location.url}/day=1/x*", f"{location.url}/day=2"]).partition_names == ("day",)


def test_glob_skips_empty_files(location: Location, put: Put) -> None:
    put("a.parquet", {"id": [1]})
    put("b.parquet", b"")
    put("c.crc", b"x")
    assert [file.path for file in open_dataset(f"{location.url}/*").inventory.files] == ["a.parquet"]


def test_percent_signs_in_file_urls_are_decoded_if_needed(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a b" / "x y.parquet")
    url = (tmp_path / "a b").as_uri()
    assert len(open_dataset(f"{url}/x%20*").paths) == 1
    assert len(open_dataset(f"{tmp_path}/a b/*").paths) == 1


def test_writers_do_not_expand_globs(tmp_path: Path) -> None:
    assert open_location(tmp_path / "run[1]*").root == str(tmp_path / "run[1]*")


@pytest.mark.leaves_running("fsspec keeps its web session")
def test_question_mark_in_an_http_url_starts_the_query(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "a.parquet")
    asked: list[str] = []

    class Here(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(tmp_path))

        def do_GET(self) -> None:
            asked.append(self.path)
            super().do_GET()

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Here) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        try:
            url = f"http://127.0.0.1:{serving.server_port}"
            location = open_location(f"{url}/a.parquet?signature=*[x]", patterns=True)
            assert (location.root, location.paths) == (url, ("a.parquet",))
            assert location.join("a.parquet") == f"{url}/a.parquet?signature=*[x]"
            assert open_location(f"{url}/*.parquet", patterns=True).paths == ("a.parquet",)
        finally:
            serving.shutdown()
            thread.join()
