"""Tests of opening a local file: it must match its footer, and the descriptor is closed after errors."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore.errors import DatasetChangedError, FileMissingError
from petastore.storage.files.location import Location, open_location
from petastore.storage.footers.footer import Footer
from petastore.storage.footers.footers import read_footer
from petastore.storage.footers.tails import LocalVersion
from petastore.storage.row_groups.opened_file import FileWithDescriptor, LocalFile, OpenedFile

NAME = "a.parquet"


def written(folder: Path, words: list[str]) -> tuple[Location, Footer]:
    pq.write_table(pa.table({"word": words}), folder / NAME, write_page_checksum=True)
    location = open_location(folder)
    return location, read_footer(location, NAME)


def is_changed(opened: LocalFile) -> bool:
    return LocalVersion.of(opened.path) != opened.version


def test_opened_file_reads_row_groups_plain_or_as_dictionary(tmp_path: Path) -> None:
    location, footer = written(tmp_path, ["one", "two", "one"])
    opened = OpenedFile(LocalFile.open_with(location, footer).source, footer)
    assert opened.reader.read_row_group(0).column("word").to_pylist() == ["one", "two", "one"]
    coded = opened.reader_of(footer, ["word"]).read_row_group(0).column("word")
    assert coded.type == pa.dictionary(pa.int32(), pa.string())
    assert coded.to_pylist() == ["one", "two", "one"]
    opened.source.close()


def test_page_checksums_are_verified_only_if_requested(tmp_path: Path) -> None:
    location, footer = written(tmp_path, ["a word", "another"])
    data = (tmp_path / NAME).read_bytes()
    (tmp_path / NAME).write_bytes(data.replace(b"another", b"an-ther"))
    readers = [
        OpenedFile(LocalFile.open_with(location, footer).source, footer, verify=verify) for verify in (True, False)
    ]
    with pytest.raises(OSError, match="CRC"):
        readers[0].reader.read_row_group(0)
    assert readers[1].reader.read_row_group(0).column("word").to_pylist() == ["a word", "an-ther"]
    for opened in readers:
        opened.source.close()


def test_open_descriptor_reads_the_old_file_after_a_replacement(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(b"read")
    file = FileWithDescriptor.of(str(path))
    (tmp_path / "newer").write_bytes(b"written later")
    (tmp_path / "newer").replace(path)
    descriptor = file.fileno()
    assert os.pread(descriptor, 9, 0) == file.read() == b"read"
    for _ in range(2):
        file.close()
    assert file.closed
    with pytest.raises(ValueError, match="closed file"):
        file.fileno()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_file_descriptor_is_closed_by_garbage_collection(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"read")
    descriptor = FileWithDescriptor.of(str(tmp_path / NAME)).fileno()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    with pytest.raises(FileNotFoundError):
        FileWithDescriptor.of(str(tmp_path / "missing"))


def test_file_that_arrow_cannot_open_is_closed(tmp_path: Path) -> None:
    location, footer = written(tmp_path, ["a"])
    source = LocalFile.open_with(location, footer).source
    with pytest.raises(TypeError):
        OpenedFile(source, footer, is_near=False, buffer_bytes="many")  # type: ignore[arg-type]
    assert source.closed


def test_file_of_another_size_raises(tmp_path: Path) -> None:
    location, footer = written(tmp_path, ["a"])
    with (tmp_path / NAME).open("ab") as file:
        file.write(footer.encoded + len(footer.encoded).to_bytes(4, "little") + b"PAR1")
    assert is_changed(LocalFile.open_with(location, footer))
    size, more = footer.file.size, footer.file.size + len(footer.encoded) + 8
    with pytest.raises(
        DatasetChangedError, match=f"it had {size:,} bytes and .* has {more:,} bytes.* Open the dataset"
    ):
        LocalFile.open_with(location, footer, is_new=True)


def test_file_of_the_same_size_with_another_footer_raises(tmp_path: Path) -> None:
    location, footer = written(tmp_path, ["left"])
    assert not is_changed(LocalFile.open_with(location, footer, is_new=True))
    written(tmp_path, ["west"])
    assert (tmp_path / NAME).stat().st_size == footer.file.size
    assert is_changed(LocalFile.open_with(location, footer))
    with pytest.raises(DatasetChangedError, match=NAME):
        LocalFile.open_with(location, footer, is_new=True)


def test_touched_file_is_read_with_the_same_footer(tmp_path: Path) -> None:
    location, footer = written(tmp_path, ["a"])
    while not is_changed(LocalFile.open_with(location, footer)):
        (tmp_path / NAME).touch()
    LocalFile.open_with(location, footer, is_new=True)
    assert not is_changed(LocalFile.open_with(location, footer))


def test_opening_a_missing_file_raises(tmp_path: Path) -> None:
    location, footer = written(tmp_path, ["a"])
    (tmp_path / NAME).unlink()
    with pytest.raises(FileMissingError, match=NAME):
        LocalFile.open_with(location, footer)
    with pytest.raises(FileMissingError, match=NAME):
        LocalFile.open(location, footer.file)
