"""Files that stay open between row groups are lent to one at a time, closed in the end, and few."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore.errors import DatasetChangedError
from petastore.storage.files.location import open_location
from petastore.storage.footers.footers import read_footer
from petastore.storage.row_groups.open_files import OpenFiles, Reading
from petastore.storage.row_groups.verified import Asked, Verified

ASKED: Asked = (("id",),)


def is_verified(reading: Reading) -> bool:
    assert reading.opened is not None
    return reading.opened.settings.verify


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
    with files.reading(location, footer, 0, ASKED) as first:
        assert first.reader.read_row_group(0).column("id").to_pylist() == [0, 0, 0]
    with files.reading(location, footer, 0, ASKED) as second:
        assert second.reader is first.reader
        with files.reading(location, footer, 0, ASKED) as beside:
            assert beside.reader is not first.reader
    with files.reading(location, footer, 0, ASKED, whole=False) as other:
        assert other.reader is not first.reader
    files.close()
    assert open_handles(tmp_path) == 0


def test_few_files_stay_open(tmp_path: Path) -> None:
    names = files_in(tmp_path, 20)
    location, files = open_location(tmp_path), OpenFiles()
    for name in names:
        with files.reading(location, read_footer(location, name), 0, ASKED) as reading:
            reading.reader.read_row_group(0)
    assert 0 < open_handles(tmp_path) <= 8
    files.close()
    assert open_handles(tmp_path) == 0


def test_more_files_stay_open_where_that_is_asked_for(tmp_path: Path) -> None:
    names = files_in(tmp_path, 20)
    location, files = open_location(tmp_path), OpenFiles(most_idle=12)
    for name in names:
        with files.reading(location, read_footer(location, name), 0, ASKED) as reading:
            reading.reader.read_row_group(0)
    assert open_handles(tmp_path) == 12
    files.close()
    assert open_handles(tmp_path) == 0


def test_a_file_stays_open_as_often_as_it_was_read_at_a_time(tmp_path: Path) -> None:
    names = files_in(tmp_path, 3)
    location, files = open_location(tmp_path), OpenFiles(most_idle=2)
    footers = [read_footer(location, name) for name in names]
    for footer in footers[:2]:
        with files.reading(location, footer, 0, ASKED), files.reading(location, footer, 0, ASKED):
            pass
    assert open_handles(tmp_path) == 4
    with files.reading(location, footers[2], 0, ASKED):
        pass
    assert open_handles(tmp_path) == 3  # the file that was read first is closed
    files.close()
    assert open_handles(tmp_path) == 0


def test_a_file_that_failed_is_closed(tmp_path: Path) -> None:
    (name,) = files_in(tmp_path, 1)
    location, files = open_location(tmp_path), OpenFiles()
    footer = read_footer(location, name)
    with pytest.raises(OSError, match="gone"), files.reading(location, footer, 0, ASKED):
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
        files.reading(location, footer, 0, ASKED),
    ):
        pass
    assert open_handles(tmp_path) == 0


def test_a_file_that_was_written_to_while_it_was_open_is_looked_at_again(tmp_path: Path) -> None:
    (name,) = files_in(tmp_path, 1)
    location, files = open_location(tmp_path), OpenFiles()
    footer = read_footer(location, name)
    with files.reading(location, footer, 0, ASKED) as first:
        first.reader.read_row_group(0)
    pq.write_table(pa.table({"id": pa.array(range(5000), pa.int64())}), tmp_path / name)
    with (
        pytest.raises(DatasetChangedError, match="rewritten since"),
        files.reading(location, footer, 0, ASKED),
    ):
        pass
    (tmp_path / name).unlink()
    with pytest.raises(FileNotFoundError), files.reading(location, footer, 0, ASKED):
        pass
    files.close()
    assert open_handles(tmp_path) == 0


@pytest.fixture
def known() -> Verified:
    """Believes files as soon as they were verified."""
    return Verified(settled_s=-1.0)


def test_what_was_found_right_is_read_without_verifying_until_somebody_writes(tmp_path: Path, known: Verified) -> None:
    (name,) = files_in(tmp_path, 1)
    location = open_location(tmp_path)
    footer = read_footer(location, name)
    seen = []
    for before in (None, None, None, "write", None, None):
        if before == "write":
            written_in_place(tmp_path / name)
        files = OpenFiles(verified=known)
        with files.reading(location, footer, 0, ASKED) as reading:
            reading.reader.read_row_group(0)
            seen.append(is_verified(reading))
            reading.found_right()
        files.close()
    assert seen == [True, False, False, True, False, False]


def test_what_was_not_read_to_its_end_is_not_believed(tmp_path: Path, known: Verified) -> None:
    (name,) = files_in(tmp_path, 1)
    location, files = open_location(tmp_path), OpenFiles(verified=known)
    footer = read_footer(location, name)
    for _ in range(2):
        with files.reading(location, footer, 0, ASKED) as reading:
            assert is_verified(reading)
    files.close()


def test_fresh_files_and_those_of_other_file_systems_are_always_verified(tmp_path: Path, known: Verified) -> None:
    (name,) = files_in(tmp_path, 1)
    away = open_location(f"memory://{tmp_path.name}")
    away.filesystem.create_dir(away.root, recursive=True)
    with away.filesystem.open_output_stream(away.join(name)) as stream:
        stream.write((tmp_path / name).read_bytes())
    for location, verified in ((open_location(tmp_path), Verified()), (away, known)):
        files, footer = OpenFiles(verified=verified), read_footer(location, name)
        for _ in range(3):
            with files.reading(location, footer, 0, ASKED) as reading:
                assert is_verified(reading)
                reading.reader.read_row_group(0)
                reading.found_right()
        files.close()


def test_a_write_while_a_believed_row_group_is_read_puts_it_in_doubt(tmp_path: Path, known: Verified) -> None:
    (name,) = files_in(tmp_path, 1)
    location, files = open_location(tmp_path), OpenFiles(verified=known)
    footer = read_footer(location, name)
    with files.reading(location, footer, 0, ASKED) as reading:
        reading.found_right()
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


def test_a_file_replaced_between_its_footer_and_its_first_row_group_is_refused(tmp_path: Path) -> None:
    location, files = open_location(tmp_path), OpenFiles()
    pq.write_table(pa.table({"id": pa.array([1, 2, 3], pa.int64())}), tmp_path / "0.parquet")
    footer = read_footer(location, "0.parquet")
    pq.write_table(pa.table({"id": pa.array([4, 5, 6], pa.int64())}), tmp_path / "aside")
    assert (tmp_path / "aside").stat().st_size == footer.file.size
    (tmp_path / "aside").replace(tmp_path / "0.parquet")
    with pytest.raises(DatasetChangedError, match="rewritten"), files.reading(location, footer, 0, ASKED):
        pass
    assert open_handles(tmp_path) == 0


def test_a_write_while_a_row_group_is_read_and_verified_puts_it_in_doubt_as_well(tmp_path: Path) -> None:
    (name,) = files_in(tmp_path, 1)
    location, files = open_location(tmp_path), OpenFiles()
    with files.reading(location, read_footer(location, name), 0, ASKED) as reading:
        assert is_verified(reading)
        assert not reading.is_in_doubt
        with (tmp_path / name).open("r+b") as file:
            file.write(b"PAR1")  # at once: the version that is compared is old enough to tell
        assert reading.is_in_doubt
        reading.verify()
        assert not reading.is_in_doubt
    files.close()
    assert open_handles(tmp_path) == 0


def written_in_place(path: Path) -> None:
    """Writes what is there already, until the clock of the file system tells of it."""
    before = path.stat().st_ctime_ns
    while path.stat().st_ctime_ns == before:
        with path.open("r+b") as file:
            file.write(b"PAR1")


def test_files_of_two_datasets_are_told_apart_though_names_and_footers_are_the_same(tmp_path: Path) -> None:
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
