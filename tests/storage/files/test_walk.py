"""Tests of walking directories: each file is listed once, also with symbolic link cycles."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import fs

from petastore.storage.files.walk import entry_at, local_path, walk

LOCAL = fs.LocalFileSystem()


def anywhere(_: str) -> bool:
    return True


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("a", "b/c", "b/d", "e"):
        (tmp_path / "ds" / name).mkdir(parents=True)
        (tmp_path / "ds" / name / "file").write_bytes(b"x")
    return tmp_path / "ds"


PLACES = ["", "a", "b", "b/c", "b/d", "e", ".."]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(PLACES[:-1]), st.sampled_from(PLACES)), max_size=6, unique=True))
def test_walk_lists_files_once_despite_links_inside_the_directory(root: Path, links: list[tuple[str, str]]) -> None:
    before = {entry.path for entry in walk(LOCAL, str(root), enter=anywhere) if entry.is_file}
    made = [root / where / f"link-{number}" for number, (where, _) in enumerate(links)]
    for link, (_, to) in zip(made, links, strict=True):
        link.symlink_to(root / to)
    try:
        found = [entry.path for entry in walk(LOCAL, str(root), enter=anywhere) if entry.is_file]
    finally:
        for link in made:
            link.unlink()
    assert sorted(found) == sorted(before)


def test_entry_at_reports_the_type_of_a_path(root: Path) -> None:
    directory, file = entry_at(LOCAL, str(root)), entry_at(LOCAL, str(root / "a" / "file"))
    assert directory is not None
    assert directory.is_directory
    assert file is not None
    assert (file.is_file, file.size) == (True, 1)
    assert entry_at(LOCAL, str(root / "gone")) is None
    assert entry_at(LOCAL, str(root / "a" / "file" / "below")) is None


def test_walk_reports_skipped_directories(root: Path) -> None:
    found = {entry.path for entry in walk(LOCAL, str(root), enter=lambda path: path != "b")}
    assert found == {"a", "a/file", "b", "e", "e/file"}
    by_level = fs.PyFileSystem(fs.FSSpecHandler(fsspec.filesystem("file")))
    same = {entry.path for entry in walk(by_level, str(root), enter=lambda path: path != "b", by_level=True)}
    assert same == found


def test_local_path_of_a_wrapped_local_filesystem_is_found(tmp_path: Path) -> None:
    below = fs.SubTreeFileSystem(str(tmp_path), LOCAL)
    assert local_path(below, "/a/b") == f"{tmp_path}/a/b"
    assert local_path(fs.SubTreeFileSystem("x", below), "y") == f"{tmp_path}/x/y"
    assert local_path(fs.PyFileSystem(fs.FSSpecHandler(fsspec.filesystem("memory"))), "/a") is None


def test_walk_of_a_missing_directory_is_empty(tmp_path: Path) -> None:
    assert list(walk(LOCAL, str(tmp_path / "gone"), enter=anywhere)) == []
