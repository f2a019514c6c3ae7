"""Tests of the write job: parts of task attempts are committed once, although some are lost or run twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import petastore
from petastore import Unischema, UnischemaField
from petastore.codecs import NdarrayCodec
from petastore.errors import (
    DatasetChangedError,
    DatasetExistsError,
    DatasetNotFoundError,
    EncodeError,
    SchemaError,
    StorageError,
)
from petastore.spark.writing.write_job import Part, WriteJob
from petastore.storage.files.listing import files_below
from petastore.storage.files.location import open_location
from petastore.writers.parquet import FileLayout
from petastore.writers.target import Mode

SCHEMA = Unischema(
    "frames", [UnischemaField("id", "int64"), UnischemaField("pose", "float32", (2, 2), NdarrayCodec(), nullable=True)]
)
LAYOUT = FileLayout.of(rows_per_row_group=4, row_group_size_mb=None, rows_per_file=None)


def job_at(url: str, mode: Mode = "append", schema: Unischema = SCHEMA, filesystem: Any = None) -> WriteJob:
    return WriteJob.begin(url, schema, LAYOUT, compression="snappy", mode=mode, writer="a test", filesystem=filesystem)


def batches_of(*numbers: int) -> list[pa.RecordBatch]:
    poses = [None if number % 5 == 4 else [float(number)] * 4 for number in numbers]
    return [pa.record_batch({"id": pa.array(numbers, pa.int64()), "pose": pa.array(poses, pa.list_(pa.float32()))})]


def ids_at(url: str) -> list[int]:
    with petastore.make_reader(url, shuffle_row_groups=False) as reader:
        return [int(row.id) for row in reader]


def files_of(job: WriteJob) -> list[str]:
    """Return all files of a job, visible to readers or not."""
    return [path for path in files_below(open_location(job.url)) if job.job in path]


def files_at(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture(params=["local", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return a URL on a filesystem with atomic renames, and on one that copies."""
    return str(tmp_path / "frames") if request.param == "local" else f"memory://write-job/{tmp_path.name}/frames"


def test_write_job_commits_parts_in_task_order(url: str) -> None:
    job = job_at(url)
    parts = [job.part(number, batches_of(*range(number * 10, number * 10 + 6))) for number in (2, 0, 1)]
    inventory = job.commit(parts)
    assert inventory.rows.tolist() == [4, 2] * 3
    assert ids_at(url) == [*range(6), *range(10, 16), *range(20, 26)]
    with petastore.make_reader(url, shuffle_row_groups=False) as reader:
        row = next(reader)
    assert row.pose.tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_write_job_is_invisible_before_the_commit(tmp_path: Path) -> None:
    folder = tmp_path / "frames"
    job = job_at(str(folder))
    part = job.part(0, batches_of(1, 2))
    with pytest.raises(DatasetNotFoundError):
        petastore.open_dataset(folder)
    assert pq.ParquetDataset(folder).files == []  # other readers do not find it either
    job.commit([part])
    assert len(pq.ParquetDataset(folder).files) == 1


def test_write_job_commit_deletes_files_of_repeated_task_attempts(url: str, tmp_path: Path) -> None:
    job = job_at(url)
    job.part(0, batches_of(1, 2))  # this attempt is lost after it completed
    counts = [job.part(0, batches_of(1, 2)), job.part(1, batches_of(3))]
    job.part(1, batches_of(3))  # a speculative attempt of the same task
    job.commit(counts)
    assert ids_at(url) == [1, 2, 3]
    if not url.startswith("memory"):
        left = files_at(tmp_path / "frames")
        assert len([path for path in left if job.job in path]) == 2, left


def test_write_job_rejects_attempts_after_the_commit(url: str) -> None:
    job = job_at(url)
    inventory = job.commit([job.part(0, batches_of(1, 2))])
    with pytest.raises(
        DatasetChangedError,
        match="the write of part 0 ended before this task attempt finished, so its rows are deleted",
    ):
        job.part(0, batches_of(1, 2))
    assert files_of(job) == [file.path for file in inventory.files]
    assert ids_at(url) == [1, 2]
    later = job_at(url)
    later.commit([later.part(0, batches_of(3))])
    assert ids_at(url) == [1, 2, 3]


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_task_attempt_that_ends_after_the_commit_deletes_its_files(url: str, end: str) -> None:
    job = job_at(url)
    counts = [job.part(0, batches_of(1, 2))]

    def batches() -> Iterator[pa.RecordBatch]:
        yield from batches_of(*range(6))  # one row group is written before the job ends
        job.commit(counts) if end == "commit" else job.abort()
        yield from batches_of(6)

    with pytest.raises(
        DatasetChangedError,
        match="the write of part 0 ended before this task attempt finished, so its rows are deleted",
    ):
        job.part(0, batches())
    names = [name for part in counts for name in part] if end == "commit" else []
    assert files_of(job) == names


class CallsBeforeDeletion(MemoryFileSystem):  # type: ignore[misc]
    """A filesystem that calls a function before it deletes a file of a part. The job has listed its files by then."""

    protocol = "calls"

    def before_deletion_of(self, part: Part, function: Callable[[], object]) -> None:
        self.names, self.function = part, function

    def rm_file(self, path: str) -> None:
        if path.endswith(self.names):
            self.names = ()
            self.function()
        super().rm_file(path)


@pytest.fixture
def store() -> CallsBeforeDeletion:
    return CallsBeforeDeletion(skip_instance_cache=True)


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_attempt_that_completes_during_cleanup_deletes_its_files(
    tmp_path: Path, store: CallsBeforeDeletion, end: str
) -> None:
    job = job_at(f"/{tmp_path.name}/frames", "error", filesystem=store)
    counts, lost = job.part(0, batches_of(1, 2)), job.part(0, batches_of(1, 2))
    meets, goes_on = threading.Event(), threading.Event()
    problems: list[BaseException] = []

    def batches() -> Iterator[pa.RecordBatch]:
        meets.set()
        assert goes_on.wait(300)
        yield from batches_of(1, 2)

    def attempt() -> None:
        try:
            job.part(0, batches())
        except DatasetChangedError as problem:
            problems.append(problem)

    thread = threading.Thread(target=attempt)

    def let_it_complete() -> None:
        goes_on.set()
        thread.join()

    store.before_deletion_of(lost, let_it_complete)
    thread.start()
    assert meets.wait(300)
    job.commit([counts]) if end == "commit" else job.abort()
    assert len(problems) == 1
    left = [path for path in store.find(f"/{tmp_path.name}") if job.job in path]
    assert [Path(path).name for path in left] == (list(counts) if end == "commit" else [])


def test_attempt_during_abort_does_not_block_the_next_write(tmp_path: Path, store: CallsBeforeDeletion) -> None:
    url = f"/{tmp_path.name}/frames"
    job = job_at(url, "error", filesystem=store)
    part = job.part(0, batches_of(1, 2))
    problems: list[BaseException] = []

    def begin_late() -> None:
        try:
            job.part(1, batches_of(3))
        except DatasetChangedError as problem:
            problems.append(problem)

    store.before_deletion_of(part, begin_late)
    job.abort()
    assert len(problems) == 1
    assert store.find(f"/{tmp_path.name}") == []
    again = job_at(url, "error", filesystem=store)
    assert again.commit([again.part(0, batches_of(4))]).rows.tolist() == [1]


def test_failed_attempt_leaves_no_marker(tmp_path: Path) -> None:
    class IsFull(MemoryFileSystem):  # type: ignore[misc]
        protocol = "full"

        def _open(self, path: str, mode: str = "rb", **how: Any) -> Any:
            if mode == "wb" and "part-" in path:
                raise OSError("no space is left")
            return super()._open(path, mode, **how)

    store = IsFull(skip_instance_cache=True)
    job = job_at(f"/{tmp_path.name}/frames", filesystem=store)
    before = store.find(f"/{tmp_path.name}")
    with pytest.raises(StorageError, match="no space is left"):
        job.part(0, batches_of(1))
    assert store.find(f"/{tmp_path.name}") == before


def test_invalid_value_fails_its_task_and_leaves_no_files(tmp_path: Path) -> None:
    folder = tmp_path / "frames"
    job = job_at(str(folder))
    bad = pa.record_batch({"id": pa.array([1, None], pa.int64()), "pose": pa.nulls(2, pa.list_(pa.float32()))})
    before = files_at(folder)
    with pytest.raises(EncodeError, match=r"column 'id', row 6"):
        job.part(0, [*batches_of(*range(5)), bad])
    assert files_at(folder) == before


def test_write_job_abort_keeps_existing_files(url: str, tmp_path: Path) -> None:
    first = job_at(url)
    first.commit([first.part(0, batches_of(1, 2))])
    job = job_at(url)
    job.part(0, batches_of(3))
    job.abort()
    assert ids_at(url) == [1, 2]
    if not url.startswith("memory"):
        assert [path for path in files_at(tmp_path / "frames") if job.job in path] == []


def test_write_job_abort_after_commit_deletes_nothing(url: str) -> None:
    job = job_at(url)
    job.commit([job.part(0, batches_of(1, 2))])
    job.abort()
    assert ids_at(url) == [1, 2]


def test_write_job_append_adds_rows_at_the_end(url: str) -> None:
    for numbers in ((1, 2), (3,), (4, 5)):
        job = job_at(url)
        job.commit([job.part(0, batches_of(*numbers))])
    assert ids_at(url) == [1, 2, 3, 4, 5]


def test_write_job_overwrite_replaces_existing_files(tmp_path: Path) -> None:
    folder = tmp_path / "frames"
    first = job_at(str(folder))
    first.commit([first.part(0, batches_of(1, 2))])
    job = job_at(str(folder), "overwrite")
    parts = [job.part(0, batches_of(7))]
    assert ids_at(str(folder)) == [1, 2]
    job.commit(parts)
    assert ids_at(str(folder)) == [7]
    assert [path for path in files_at(folder) if first.job in path] == []


def test_write_job_overwrite_raises_after_a_concurrent_write(url: str) -> None:
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


def test_write_job_overwrite_raises_when_another_was_first(url: str) -> None:
    job = job_at(url, "overwrite")
    part = job.part(0, batches_of(7))
    other = job_at(url)
    other.commit([other.part(0, batches_of(3))])
    with pytest.raises(DatasetChangedError):
        job.commit([part])


def test_write_job_creation_raises_when_another_was_first(url: str) -> None:
    job = job_at(url, "error")
    part = job.part(0, batches_of(7))
    other = job_at(url)
    other.commit([other.part(0, batches_of(3))])
    with pytest.raises(DatasetExistsError, match="another writer committed"):
        job.commit([part])
    job.abort()
    with pytest.raises(DatasetExistsError, match="must be empty, got"):
        job_at(url, "error")
    assert ids_at(url) == [3]


def test_write_job_creates_a_missing_dataset(url: str) -> None:
    job = job_at(url, "error")
    job.commit([job.part(1, batches_of(2)), job.part(0, batches_of(1))])
    assert ids_at(url) == [1, 2]


@pytest.mark.parametrize("parts", [0, 2])
def test_write_job_without_rows_writes_a_schema(url: str, parts: int) -> None:
    job = job_at(url)
    job.commit([job.part(number, []) for number in range(parts)])
    assert petastore.open_dataset(url).schema == SCHEMA
    assert petastore.open_dataset(url).inventory.num_rows == 0


def test_write_job_with_another_schema_raises_before_writing(url: str) -> None:
    first = job_at(url)
    first.commit([first.part(0, batches_of(1))])
    with pytest.raises(SchemaError, match=r"rows to append must have the schema of .*, got a difference"):
        job_at(url, schema=Unischema("frames", [UnischemaField("id", "int32")]))


def test_write_job_can_be_pickled(url: str) -> None:
    import pickle

    job = job_at(url)
    sent: Any = pickle.loads(pickle.dumps(job))  # noqa: S301 - our own
    assert sent == job
    job.commit([sent.part(0, batches_of(1))])
    assert ids_at(url) == [1]


def test_write_job_applies_row_group_sizes_within_each_task(url: str) -> None:
    layout = FileLayout.of(rows_per_row_group=3, row_group_size_mb=None, rows_per_file=6)
    job = WriteJob.begin(url, SCHEMA, layout, compression="zstd", mode="append", writer="a test")
    inventory = job.commit([job.part(0, batches_of(*range(8))), job.part(1, batches_of(*range(20, 24)))])
    assert inventory.rows.tolist() == [3, 3, 3, 1, 2] or inventory.rows.tolist() == [3, 3, 2, 3, 1]
    assert sorted(ids_at(url)) == [*range(8), *range(20, 24)]
    assert np.array_equal(np.sort(inventory.rows), [1, 2, 3, 3, 3])
