"""Tests of the cache of open files: reuse, limit, one read per handle, rewritten files, verified checksums."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore.errors import DatasetChangedError, MetadataError
from petastore.inventory import DataFile
from petastore.storage.files.location import Location, open_location
from petastore.storage.footers.footer_cache import FooterCache
from petastore.storage.footers.footers import read_footer
from petastore.storage.row_groups.asked_columns import Part
from petastore.storage.row_groups.open_files import SETTLED_NS, OpenFiles, Reading, VerifiedRowGroups
from petastore.storage.row_groups.opened_file import Asked
from petastore.storage.row_groups.row_group import read_row_group_in_parts

ASKED: Asked = (("id",),)


def is_verified(reading: Reading) -> bool:
    return reading.opened.verify


def files_in(tmp_path: Path, count: int) -> list[str]:
    names = [f"{number}.parquet" for number in range(count)]
    for number, name in enumerate(names):
        pq.write_table(pa.table({"id": pa.array([number] * 3, pa.int64())}), tmp_path / name)
    return names


def large(folder: Path, first: int) -> Path:
    """Write a file that is too large to be read whole."""
    numbers = np.random.default_rng(first).permutation(100_000) + first
    numbers[:2] = first, first + 1
    pq.write_table(pa.table({"id": numbers}), folder / "0.parquet", compression="none", use_dictionary=False)
    return folder


def open_handles(folder: Path) -> int:
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sum(str(folder) in str(link.readlink()) for link in links)


def test_open_file_is_reused_by_later_reads(tmp_path: Path) -> None:
    (name,) = files_in(tmp_path, 1)
    location, files = open_location(tmp_path), OpenFiles()
    footer = read_footer(location, name)
    with files.reading(location, footer, 0, ASKED) as first:
        assert first.reader.read_row_group(0).column("id").to_pylist() == [0, 0, 0]
    with files.reading(location, footer, 0, ASKED) as second:
        assert second.reader is first.reader
        with files.reading(location, footer, 0, ASKED) as beside:
            assert beside.reader is not first.reader
    files.close()
    assert open_handles(tmp_path) == 0


def test_number_of_open_files_is_limited(tmp_path: Path) -> None:
    names = files_in(tmp_path, 20)
    location, files = open_location(tmp_path), OpenFiles()
    for name in names:
        with files.reading(location, read_footer(location, name), 0, ASKED) as reading:
            reading.reader.read_row_group(0)
    assert 0 < open_handles(tmp_path) <= 8
    files.close()
    assert open_handles(tmp_path) == 0


def test_open_file_limit_can_be_raised(tmp_path: Path) -> None:
    names = files_in(tmp_path, 20)
    location, files = open_location(tmp_path), OpenFiles(most_idle=12)
    for name in names:
        with files.reading(location, read_footer(location, name), 0, ASKED) as reading:
            reading.reader.read_row_group(0)
    assert open_handles(tmp_path) == 12
    files.close()
    assert open_handles(tmp_path) == 0


def test_open_file_has_a_handle_per_concurrent_read(tmp_path: Path) -> None:
    names = files_in(tmp_path, 3)
    location, files = open_location(tmp_path), OpenFiles(most_idle=2)
    footers = [read_footer(location, name) for name in names]
    for footer in footers[:2]:
        with files.reading(location, footer, 0, ASKED), files.reading(location, footer, 0, ASKED):
            pass
    assert open_handles(tmp_path) == 4
    with files.reading(location, footers[2], 0, ASKED):
        pass
    assert open_handles(tmp_path) == 3  # the least recently read file is closed
    files.close()
    assert open_handles(tmp_path) == 0


def test_open_file_is_closed_after_a_read_error(tmp_path: Path) -> None:
    (name,) = files_in(tmp_path, 1)
    location, files = open_location(tmp_path), OpenFiles()
    footer = read_footer(location, name)
    with pytest.raises(OSError, match="gone"), files.reading(location, footer, 0, ASKED):
        raise OSError("gone")
    assert open_handles(tmp_path) == 0


def read(location: Location, file: DataFile, files: OpenFiles) -> list[int]:
    tables = read_row_group_in_parts(location, file, 0, [Part(("id",))], footers=FooterCache(), files=files)
    return [one for table in tables for one in table.column("id").to_pylist()]


def test_file_of_another_size_raises_when_it_is_read(tmp_path: Path) -> None:
    location, files = open_location(large(tmp_path, 5)), OpenFiles()
    footers, file = FooterCache(), read_footer(location, "0.parquet").file
    footers.know(location, [read_footer(location, "0.parquet")])
    with (tmp_path / "0.parquet").open("ab") as opened:
        opened.write(b"more")
    tables = read_row_group_in_parts(location, file, 0, [Part(("id",))], footers=footers, files=files)
    with pytest.raises((DatasetChangedError, MetadataError), match=r"rewritten since|truncated or damaged"):
        list(tables)
    assert open_handles(tmp_path) == 0


def test_modified_open_file_raises_when_read_again(tmp_path: Path) -> None:
    location, files = open_location(large(tmp_path, 5)), OpenFiles()
    file = read_footer(location, "0.parquet").file
    assert read(location, file, files)[:2] == [5, 6]
    assert open_handles(tmp_path) == 1
    large(tmp_path, 6)
    with pytest.raises(DatasetChangedError, match="rewritten since"):
        read(location, file, files)
    (tmp_path / "0.parquet").unlink()
    with pytest.raises(FileNotFoundError):
        read(location, file, files)
    files.close()
    assert open_handles(tmp_path) == 0


@pytest.fixture
def known() -> VerifiedRowGroups:
    return VerifiedRowGroups()


def test_row_group_checksums_are_verified_once_until_the_file_is_written(
    tmp_path: Path, known: VerifiedRowGroups
) -> None:
    (name,) = files_in(tmp_path, 1)
    location = open_location(tmp_path)
    footer = read_footer(location, name)
    seen = []
    for before in (None, None, None, "write", None, None):
        if before == "write":
            written_in_place(tmp_path / name)
        settle(tmp_path / name)
        files = OpenFiles(verified=known)
        with files.reading(location, footer, 0, ASKED) as reading:
            reading.reader.read_row_group(0)
            if reading.is_in_doubt:
                reading.verify()
            seen.append(is_verified(reading))
            reading.note_verified()
        files.close()
    assert seen == [True, False, False, True, False, False]


def test_checksums_are_verified_again_for_a_file_written_just_now(
    tmp_path: Path, known: VerifiedRowGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    (name,) = files_in(tmp_path, 1)
    location, files = open_location(tmp_path), OpenFiles(verified=known)
    footer = read_footer(location, name)
    changed_ns = (tmp_path / name).stat().st_ctime_ns
    monkeypatch.setattr(time, "time_ns", lambda: changed_ns + SETTLED_NS)
    for _ in range(3):
        with files.reading(location, footer, 0, ASKED) as reading:
            assert is_verified(reading)
            reading.note_verified()
    files.close()


def test_row_group_not_read_completely_is_verified_again(tmp_path: Path, known: VerifiedRowGroups) -> None:
    (name,) = files_in(tmp_path, 1)
    location, files = open_location(tmp_path), OpenFiles(verified=known)
    footer = read_footer(location, name)
    for _ in range(2):
        with files.reading(location, footer, 0, ASKED) as reading:
            assert is_verified(reading)
    files.close()


def test_checksums_of_remote_files_are_always_verified(tmp_path: Path, known: VerifiedRowGroups) -> None:
    (name,) = files_in(tmp_path, 1)
    away = open_location(f"memory://{tmp_path.name}")
    away.filesystem.create_dir(away.root, recursive=True)
    with away.filesystem.open_output_stream(away.join(name)) as stream:
        stream.write((tmp_path / name).read_bytes())
    files, footer = OpenFiles(verified=known), read_footer(away, name)
    for _ in range(3):
        with files.reading(away, footer, 0, ASKED) as reading:
            assert is_verified(reading)
            reading.reader.read_row_group(0)
            reading.note_verified()
    files.close()


def test_write_while_reading_a_verified_row_group_is_detected(tmp_path: Path, known: VerifiedRowGroups) -> None:
    (name,) = files_in(tmp_path, 1)
    settle(tmp_path / name)
    location, files = open_location(tmp_path), OpenFiles(verified=known)
    footer = read_footer(location, name)
    with files.reading(location, footer, 0, ASKED) as reading:
        reading.note_verified()
    with files.reading(location, footer, 0, ASKED) as reading:
        assert not is_verified(reading)
        assert not reading.is_in_doubt
        written_in_place(tmp_path / name)
        assert reading.is_in_doubt
        reading.verify()
        assert is_verified(reading)
        assert not reading.is_in_doubt
    files.close()
    assert open_handles(tmp_path) == 0


def test_file_replaced_between_its_footer_and_its_first_row_group_raises(tmp_path: Path) -> None:
    location, files = open_location(large(tmp_path, 1)), OpenFiles()
    footers, footer = FooterCache(), read_footer(location, "0.parquet")
    footers.know(location, [footer])
    (tmp_path / "aside").mkdir()
    other = large(tmp_path / "aside", 2) / "0.parquet"
    assert other.stat().st_size == footer.file.size
    other.replace(tmp_path / "0.parquet")
    tables = read_row_group_in_parts(location, footer.file, 0, [Part(("id",))], footers=footers, files=files)
    with pytest.raises(DatasetChangedError, match="rewritten"):
        next(tables)
    assert open_handles(tmp_path) == 0


def test_write_while_verifying_a_row_group_is_detected(tmp_path: Path) -> None:
    (name,) = files_in(tmp_path, 1)
    location, files = open_location(tmp_path), OpenFiles()
    with files.reading(location, read_footer(location, name), 0, ASKED) as reading:
        assert is_verified(reading)
        assert not reading.is_in_doubt
        written_in_place(tmp_path / name)
        assert reading.is_in_doubt
        reading.verify()
        assert not reading.is_in_doubt
    files.close()
    assert open_handles(tmp_path) == 0


def settle(path: Path) -> None:
    """Wait until the last change of a file is old enough to be trusted."""
    while time.time_ns() - path.stat().st_ctime_ns <= SETTLED_NS:
        time.sleep(0.001)


def written_in_place(path: Path) -> None:
    """Rewrite the existing bytes until the ctime changes."""
    before = path.stat().st_ctime_ns
    while path.stat().st_ctime_ns == before:
        with path.open("r+b") as file:
            file.write(b"PAR1")


def test_open_files_of_equal_names_in_two_datasets_are_distinguished(tmp_path: Path) -> None:
    locations, files = [], OpenFiles()
    for folder, value in (("a", 1), ("b", 2)):
        (tmp_path / folder).mkdir()
        table = pa.table({"id": pa.array([value] * 3, pa.int64())})
        pq.write_table(table, tmp_path / folder / "0.parquet", write_statistics=False)
        locations.append(open_location(tmp_path / folder))
    footers = [read_footer(location, "0.parquet") for location in locations]
    assert footers[0].file == footers[1].file
    for _ in range(2):
        for location, footer, value in zip(locations, footers, (1, 2), strict=True):
            with files.reading(location, footer, 0, ASKED) as reading:
                assert reading.reader.read_row_group(0).column("id").to_pylist() == [value] * 3
            assert files.footer_of(location, footer.file) is footer
    files.close()
