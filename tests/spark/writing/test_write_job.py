"""A dataset is written in parts, of which some count, some are lost and some are written twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore import Unischema, UnischemaField
from petastore.codecs import NdarrayCodec
from petastore.errors import DatasetChangedError, DatasetExistsError, DatasetNotFoundError, EncodeError, SchemaError
from petastore.spark.writing.write_job import WriteJob
from petastore.storage.files.listing import files_below
from petastore.storage.files.location import open_location
from petastore.storage.files.whole_files import delete_quietly
from petastore.writers.layout import Layout
from petastore.writers.target import Mode

SCHEMA = Unischema(
    "frames", [UnischemaField("id", "int64"), UnischemaField("pose", "float32", (2, 2), NdarrayCodec(), nullable=True)]
)
LAYOUT = Layout.of(rows_per_row_group=4, row_group_size_mb=None, rows_per_file=None)


def job_at(url: str, mode: Mode = "append", schema: Unischema = SCHEMA) -> WriteJob:
    return WriteJob.begin(url, schema, LAYOUT, compression="snappy", mode=mode, writer="a test")


def batches_of(*numbers: int) -> list[pa.RecordBatch]:
    poses = [None if number % 5 == 4 else [float(number)] * 4 for number in numbers]
    return [pa.record_batch({"id": pa.array(numbers, pa.int64()), "pose": pa.array(poses, pa.list_(pa.float32()))})]


def ids_at(url: str) -> list[int]:
    with petastore.make_reader(url, shuffle_row_groups=False) as reader:
        return [int(row.id) for row in reader]


def files_at(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture(params=["local", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where renames are cheap, and where they are copies."""
    return str(tmp_path / "frames") if request.param == "local" else f"memory://write-job/{tmp_path.name}/frames"


def test_parts_that_count_are_the_dataset_in_the_order_of_their_tasks(url: str) -> None:
    job = job_at(url)
    parts = [job.part(number, batches_of(*range(number * 10, number * 10 + 6))) for number in (2, 0, 1)]
    inventory = job.commit(parts)
    assert inventory.rows.tolist() == [4, 2] * 3
    assert ids_at(url) == [*range(6), *range(10, 16), *range(20, 26)]
    with petastore.make_reader(url, shuffle_row_groups=False) as reader:
        row = next(reader)
    assert row.pose.tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_nothing_is_there_for_readers_before_the_commit(tmp_path: Path) -> None:
    folder = tmp_path / "frames"
    job = job_at(str(folder))
    part = job.part(0, batches_of(1, 2))
    with pytest.raises(DatasetNotFoundError):
        petastore.open_dataset(folder)
    assert pq.ParquetDataset(folder).files == []  # hidden from others, too
    job.commit([part])
    assert len(pq.ParquetDataset(folder).files) == 1


def test_attempts_that_do_not_count_are_deleted_with_the_commit(url: str, tmp_path: Path) -> None:
    job = job_at(url)
    job.part(0, batches_of(1, 2))  # its task was lost after it
    counts = [job.part(0, batches_of(1, 2)), job.part(1, batches_of(3))]
    job.part(1, batches_of(3))  # run twice, to be the faster one
    job.commit(counts)
    assert ids_at(url) == [1, 2, 3]
    if not url.startswith("memory"):
        left = files_at(tmp_path / "frames")
        assert len([path for path in left if job.job in path]) == 2, left


def test_an_attempt_that_ends_after_the_commit_stays_out(url: str) -> None:
    job = job_at(url)
    job.commit([job.part(0, batches_of(1, 2))])
    job.part(0, batches_of(1, 2))
    assert ids_at(url) == [1, 2]
    later = job_at(url)
    later.commit([later.part(0, batches_of(3))])
    assert ids_at(url) == [1, 2, 3]


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_an_attempt_that_was_being_written_at_the_end_of_its_job_deletes_its_files(url: str, end: str) -> None:
    job = job_at(url)
    counts = [job.part(0, batches_of(1, 2))]

    def batches() -> Iterator[pa.RecordBatch]:
        yield from batches_of(*range(6))  # a row group of it is written by the end
        job.commit(counts) if end == "commit" else job.abort()
        yield from batches_of(6)

    with pytest.raises(DatasetChangedError, match="part 0 belongs to has ended without these rows"):
        job.part(0, batches())
    names = [name for part in counts for name in part.names] if end == "commit" else []
    location = open_location(url)
    assert [path for path in files_below(location) if job.job in path] == names


def test_an_attempt_that_is_complete_while_its_job_ends_is_deleted(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_at(url)
    counts = [job.part(0, batches_of(1, 2))]
    meets, ends = threading.Event(), threading.Event()

    def batches() -> Iterator[pa.RecordBatch]:
        meets.set()
        assert ends.wait(300)
        yield from batches_of(1, 2)

    attempt = threading.Thread(target=job.part, args=(0, batches()))

    def deleted(location: Any, path: str) -> None:
        if not ends.is_set():  # the files are listed, and the other attempt has only a marker among them
            ends.set()
            attempt.join()
        delete_quietly(location, path)

    monkeypatch.setattr("petastore.spark.writing.write_job.delete_quietly", deleted)
    attempt.start()
    assert meets.wait(300)
    job.commit(counts)
    assert [path for path in files_below(open_location(url)) if job.job in path] == list(counts[0].names)


def test_a_value_that_does_not_fit_fails_its_part_and_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "frames"
    job = job_at(str(folder))
    bad = pa.record_batch({"id": pa.array([1, None], pa.int64()), "pose": pa.nulls(2, pa.list_(pa.float32()))})
    with pytest.raises(EncodeError, match=r"column 'id', row 6"):
        job.part(0, [*batches_of(*range(5)), bad])
    assert [path for path in files_at(folder) if job.job in path] == []


def test_an_abort_deletes_what_was_written_and_keeps_what_is_there(url: str, tmp_path: Path) -> None:
    first = job_at(url)
    first.commit([first.part(0, batches_of(1, 2))])
    job = job_at(url)
    job.part(0, batches_of(3))
    job.abort()
    assert ids_at(url) == [1, 2]
    if not url.startswith("memory"):
        assert [path for path in files_at(tmp_path / "frames") if job.job in path] == []


def test_an_abort_after_a_commit_that_succeeded_deletes_nothing(url: str) -> None:
    job = job_at(url)
    job.commit([job.part(0, batches_of(1, 2))])
    job.abort()
    assert ids_at(url) == [1, 2]


def test_rows_that_are_appended_come_last(url: str) -> None:
    for numbers in ((1, 2), (3,), (4, 5)):
        job = job_at(url)
        job.commit([job.part(0, batches_of(*numbers))])
    assert ids_at(url) == [1, 2, 3, 4, 5]


def test_an_overwrite_replaces_what_was_there(tmp_path: Path) -> None:
    folder = tmp_path / "frames"
    first = job_at(str(folder))
    first.commit([first.part(0, batches_of(1, 2))])
    job = job_at(str(folder), "overwrite")
    parts = [job.part(0, batches_of(7))]
    assert ids_at(str(folder)) == [1, 2]
    job.commit(parts)
    assert ids_at(str(folder)) == [7]
    assert [path for path in files_at(folder) if first.job in path] == []


def test_an_overwrite_of_what_another_writer_changed_meanwhile_is_refused(url: str) -> None:
    first = job_at(url)
    first.commit([first.part(0, batches_of(1, 2))])
    job = job_at(url, "overwrite")
    part = job.part(0, batches_of(7))
    other = job_at(url)
    other.commit([other.part(0, batches_of(3))])
    with pytest.raises(DatasetChangedError, match="another writer committed"):
        job.commit([part])
    job.abort()
    assert ids_at(url) == [1, 2, 3]


def test_an_overwrite_of_nothing_is_refused_where_another_writer_was_first(url: str) -> None:
    job = job_at(url, "overwrite")
    part = job.part(0, batches_of(7))
    other = job_at(url)
    other.commit([other.part(0, batches_of(3))])
    with pytest.raises(DatasetChangedError):
        job.commit([part])


def test_a_write_to_where_nothing_is_may_find_no_other(url: str) -> None:
    job = job_at(url, "error")
    part = job.part(0, batches_of(7))
    other = job_at(url)
    other.commit([other.part(0, batches_of(3))])
    with pytest.raises(DatasetExistsError, match="another writer committed"):
        job.commit([part])
    job.abort()
    with pytest.raises(DatasetExistsError, match="is not empty"):
        job_at(url, "error")
    assert ids_at(url) == [3]


def test_a_write_to_where_nothing_is_commits(url: str) -> None:
    job = job_at(url, "error")
    job.commit([job.part(1, batches_of(2)), job.part(0, batches_of(1))])
    assert ids_at(url) == [1, 2]


@pytest.mark.parametrize("parts", [0, 2])
def test_a_dataset_without_rows_has_a_schema(url: str, parts: int) -> None:
    job = job_at(url)
    job.commit([job.part(number, []) for number in range(parts)])
    assert petastore.open_dataset(url).schema == SCHEMA
    assert petastore.open_dataset(url).inventory.num_rows == 0


def test_another_schema_is_refused_before_anything_is_written(url: str) -> None:
    first = job_at(url)
    first.commit([first.part(0, batches_of(1))])
    with pytest.raises(SchemaError, match="has another schema"):
        job_at(url, schema=Unischema("frames", [UnischemaField("id", "int32")]))


def test_a_job_goes_to_its_tasks_by_pickle(url: str) -> None:
    import pickle

    job = job_at(url)
    sent: Any = pickle.loads(pickle.dumps(job))  # noqa: S301 - our own
    assert sent == job
    job.commit([sent.part(0, batches_of(1))])
    assert ids_at(url) == [1]


def test_sizes_hold_within_each_part(url: str) -> None:
    layout = Layout.of(rows_per_row_group=3, row_group_size_mb=None, rows_per_file=6)
    job = WriteJob.begin(url, SCHEMA, layout, compression="zstd", mode="append", writer="a test")
    inventory = job.commit([job.part(0, batches_of(*range(8))), job.part(1, batches_of(*range(20, 24)))])
    assert inventory.rows.tolist() == [3, 3, 3, 1, 2] or inventory.rows.tolist() == [3, 3, 2, 3, 1]
    assert sorted(ids_at(url)) == [*range(8), *range(20, 24)]
    assert np.array_equal(np.sort(inventory.rows), [1, 2, 3, 3, 3])
