"""Tests of the cache folder: entries and locked files are counted, also while other processes rename files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from petastore.cache.folder import Folder, locked
from petastore.cache.table import FUTURE, KEPT, WRITING

ONE, TWO = "ab" * 16, "cd" * 16


def made(root: Path, *entries: str) -> Folder:
    folder = Folder(root)
    folder.make()
    for name in entries:
        Path(folder.entry(name)).parent.mkdir()
        Path(folder.entry(name)).write_bytes(bytes(5000))
    return folder


def counted(folder: Folder) -> dict[str, tuple[int, int]]:
    rows = folder.files()
    names = [digest.tobytes().hex() for digest in rows.digest]
    return dict(zip(names, zip(rows.size.tolist(), rows.state.tolist(), strict=True), strict=True))


def test_cache_folder_counts_entries_and_locked_files(tmp_path: Path) -> None:
    folder = made(tmp_path / "cache", ONE)
    (folder.writing / TWO).write_bytes(bytes(4096))
    (folder.futures / ("ef" * 16)).write_bytes(bytes(1))
    (folder.writing / "dead").write_bytes(bytes(1))
    held = [locked(folder.writing / TWO, patience=0), locked(folder.futures / ("ef" * 16), patience=0)]
    try:
        assert counted(folder) == {ONE: (8192, KEPT), TWO: (4096, WRITING), "ef" * 16: (4096, FUTURE)}
    finally:
        for file in held:
            assert file is not None
            file.close()
    assert counted(folder) == {ONE: (8192, KEPT)}
    assert not list(folder.writing.iterdir())
    assert not list(folder.futures.iterdir())


def test_cache_folder_counts_a_renamed_file_once(tmp_path: Path) -> None:
    class Busy(Folder):
        def _held(self, folder: Path, state: int) -> Iterator[Any]:  # type: ignore[override]
            yield from super()._held(folder, state)
            if folder == self.writing:
                self.rename(folder / TWO, Path(self.entry(TWO)))

    folder = Busy(made(tmp_path / "cache", ONE).root)
    (folder.writing / TWO).write_bytes(bytes(100))
    held = locked(folder.writing / TWO, patience=0)
    assert held is not None
    with held:
        assert counted(folder) == {ONE: (8192, KEPT), TWO: (4096, KEPT)}


def test_empty_cache_folder_has_no_entries(tmp_path: Path) -> None:
    assert counted(made(tmp_path / "cache")) == {}
