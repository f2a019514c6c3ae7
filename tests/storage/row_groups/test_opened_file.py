"""A local file is opened if it is the one that its footer is of, and closed where Arrow makes no reader of it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore.errors import DatasetChangedError, FileMissingError
from petastore.inventory import DataFile
from petastore.storage.files.location import Location, open_location
from petastore.storage.footers.footers import Footer, read_footer
from petastore.storage.row_groups.opened_file import OpenedFile, Settings, check_footer, open_local
from petastore.storage.row_groups.verified import Version, telling_version_of

NAME = "a.parquet"
SETTINGS = Settings(verify=True, whole=True)


def written(folder: Path, words: list[str]) -> tuple[Location, Footer]:
    pq.write_table(pa.table({"word": words}), folder / NAME, write_page_checksum=True)
    location = open_location(folder)
    return location, read_footer(location, NAME)


def version_in(folder: Path) -> Version:
    version = telling_version_of(str(folder / NAME))
    assert version is not None
    return version


def test_pages_are_read_of_what_was_opened(tmp_path: Path) -> None:
    location, footer = written(tmp_path, ["one", "two", "one"])
    opened = OpenedFile(open_local(location, str(tmp_path / NAME), footer.file), footer, SETTINGS)
    assert opened.reader.read_row_group(0).column("word").to_pylist() == ["one", "two", "one"]
    coded = opened.reader_of(footer, ["word"]).read_row_group(0).column("word")
    assert coded.type == pa.dictionary(pa.int32(), pa.string())
    assert coded.to_pylist() == ["one", "two", "one"]
    opened.source.close()


def test_checksums_are_verified_where_that_is_asked_for(tmp_path: Path) -> None:
    location, footer = written(tmp_path, ["a word", "another"])
    data = (tmp_path / NAME).read_bytes()
    (tmp_path / NAME).write_bytes(data.replace(b"another", b"an-ther"))
    readers = [
        OpenedFile(open_local(location, str(tmp_path / NAME), footer.file), footer, Settings(verify, whole=True))
        for verify in (True, False)
    ]
    with pytest.raises(OSError, match="CRC"):
        readers[0].reader.read_row_group(0)
    assert readers[1].reader.read_row_group(0).column("word").to_pylist() == ["a word", "an-ther"]
    for opened in readers:
        opened.source.close()


def test_what_arrow_makes_no_reader_of_is_closed(tmp_path: Path) -> None:
    location, footer = written(tmp_path, ["a"])
    source = open_local(location, str(tmp_path / NAME), footer.file)
    with pytest.raises(TypeError):
        OpenedFile(source, footer, SETTINGS, is_near=False, buffer_bytes="many")  # type: ignore[arg-type]
    assert source.closed


def test_a_file_of_another_size_is_refused(tmp_path: Path) -> None:
    location, footer = written(tmp_path, ["a"])
    with (tmp_path / NAME).open("ab") as file:
        file.write(b"more")
    size = footer.file.size
    with pytest.raises(DatasetChangedError, match=f"it had {size:,} bytes, and has {size + 4:,}. Open the dataset"):
        open_local(location, str(tmp_path / NAME), footer.file)
    with pytest.raises(DatasetChangedError, match=NAME):
        check_footer(location, footer, version_in(tmp_path))


def test_a_file_of_the_same_size_with_another_footer_is_refused(tmp_path: Path) -> None:
    location, footer = written(tmp_path, ["left"])
    check_footer(location, footer, version_in(tmp_path))
    written(tmp_path, ["west"])
    assert (tmp_path / NAME).stat().st_size == footer.file.size
    with pytest.raises(DatasetChangedError, match=NAME):
        check_footer(location, footer, version_in(tmp_path))


def test_a_file_that_is_gone_is_missing(tmp_path: Path) -> None:
    location, footer = written(tmp_path, ["a"])
    with pytest.raises(FileMissingError, match=NAME):
        open_local(location, str(tmp_path / "gone" / NAME), DataFile(NAME, footer.file.size, footer.file.digest))
