"""Files that stay open between row groups are lent to one at a time, closed in the end, and few."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore.errors import DatasetChangedError
from petastore.storage.footers import read_footer
from petastore.storage.location import open_location
from petastore.storage.open_files import OpenFiles


def files_in(tmp_path: Path, count: int) -> list[str]:
    names = [f"{number}.parquet" for number in range(count)]
    for number, name in enumerate(names):
        pq.write_table(pa.table({"id": pa.array([number] * 3, pa.int64())}), tmp_path / name)
    return names


def open_handles(folder: Path) -> int:
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sum(str(folder) in str(link.readlink()) for link in links)


def test_a_file_is_opened_once_for_whoever_reads_it_next(tmp_path: Path) -> None:
    (name,) = files_in(tmp_path, 1)
    location, files = open_location(tmp_path), OpenFiles()
    footer = read_footer(location, name)
    with files.reader(location, footer, verify=False, whole=True) as first:
        assert first.read_row_group(0).column("id").to_pylist() == [0, 0, 0]
    with files.reader(location, footer, verify=False, whole=True) as second:
        assert second is first
        with files.reader(location, footer, verify=False, whole=True) as beside:
            assert beside is not first
    with files.reader(location, footer, verify=True, whole=True) as verifying:
        assert verifying is not first
    files.close()
    assert open_handles(tmp_path) == 0


def test_few_files_stay_open(tmp_path: Path) -> None:
    names = files_in(tmp_path, 20)
    location, files = open_location(tmp_path), OpenFiles()
    for name in names:
        with files.reader(location, read_footer(location, name), verify=False, whole=True) as reader:
            reader.read_row_group(0)
    assert 0 < open_handles(tmp_path) <= 8
    files.close()
    assert open_handles(tmp_path) == 0


def test_more_files_stay_open_where_that_is_asked_for(tmp_path: Path) -> None:
    names = files_in(tmp_path, 20)
    location, files = open_location(tmp_path), OpenFiles(most_idle=12)
    for name in names:
        with files.reader(location, read_footer(location, name), verify=False, whole=True) as reader:
            reader.read_row_group(0)
    assert open_handles(tmp_path) == 12
    files.close()
    assert open_handles(tmp_path) == 0


def test_a_file_that_failed_is_closed(tmp_path: Path) -> None:
    (name,) = files_in(tmp_path, 1)
    location, files = open_location(tmp_path), OpenFiles()
    footer = read_footer(location, name)
    with pytest.raises(OSError, match="gone"), files.reader(location, footer, verify=False, whole=True):
        raise OSError("gone")
    assert open_handles(tmp_path) == 0


def test_a_file_of_another_size_is_refused_when_it_is_opened(tmp_path: Path) -> None:
    (name,) = files_in(tmp_path, 1)
    location, files = open_location(tmp_path), OpenFiles()
    footer = read_footer(location, name)
    with (tmp_path / name).open("ab") as file:
        file.write(b"more")
    with (
        pytest.raises(DatasetChangedError, match="rewritten since"),
        files.reader(location, footer, verify=False, whole=True),
    ):
        pass
    assert open_handles(tmp_path) == 0


def test_a_file_that_was_written_to_while_it_was_open_is_looked_at_again(tmp_path: Path) -> None:
    (name,) = files_in(tmp_path, 1)
    location, files = open_location(tmp_path), OpenFiles()
    footer = read_footer(location, name)
    with files.reader(location, footer, verify=False, whole=True) as first:
        first.read_row_group(0)
    pq.write_table(pa.table({"id": pa.array(range(5000), pa.int64())}), tmp_path / name)
    with (
        pytest.raises(DatasetChangedError, match="rewritten since"),
        files.reader(location, footer, verify=False, whole=True),
    ):
        pass
    (tmp_path / name).unlink()
    with pytest.raises(FileNotFoundError), files.reader(location, footer, verify=False, whole=True):
        pass
    files.close()
    assert open_handles(tmp_path) == 0
