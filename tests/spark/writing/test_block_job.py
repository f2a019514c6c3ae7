"""Tests of the write job of a materialize block: its writes are committed together, or deleted together."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import petastore
from petastore import Unischema, UnischemaField
from petastore.errors import InvalidArgumentError
from petastore.spark.writing.dataset_writer import BlockJob
from petastore.spark.writing.write_job import Part, WriteJob
from petastore.writers.encode import encode_chunks
from petastore.writers.parquet import FileLayout

SCHEMA = Unischema("ids", [UnischemaField("id", "int64")])


def block_at(folder: Path) -> BlockJob:
    layout = FileLayout.of(rows_per_row_group=2, row_group_size_mb=None, rows_per_file=None)
    return BlockJob(str(folder), SCHEMA, layout, "snappy", "a test")


def parts(*tasks: Iterable[int]) -> Any:
    """Return a function that runs the tasks, as Spark would."""

    def parts_of(job: WriteJob, first: int) -> list[Part]:
        rows = [[{"id": number} for number in task] for task in tasks]
        return [job.part_of_cells(first + n, encode_chunks(one, SCHEMA)) for n, one in enumerate(rows)]

    return parts_of


def ids_at(folder: Path) -> list[int]:
    with petastore.make_reader(str(folder), shuffle_row_groups=False) as reader:
        return [int(row.id) for row in reader]


def test_writes_of_a_materialize_block_are_committed_together_in_order(tmp_path: Path) -> None:
    block = block_at(tmp_path)
    block.write("error", parts([1, 2, 3], [4], []))
    block.write("error", parts([5], [6, 7]))
    assert block.commit().rows.tolist() == [2, 1, 1, 1, 2]
    assert ids_at(tmp_path) == [1, 2, 3, 4, 5, 6, 7]


def test_block_writes_with_another_mode_raise(tmp_path: Path) -> None:
    block = block_at(tmp_path)
    block.write("append", parts([1]))
    with pytest.raises(
        InvalidArgumentError, match="mode must be 'append', as in the block's first write, got 'overwrite'"
    ):
        block.write("overwrite", parts([2]))
    with pytest.raises(InvalidArgumentError, match="mode must be one of 'error', 'overwrite', 'append', got 'ignore'"):
        block.write("ignore", parts([2]))  # type: ignore[arg-type]


def test_failed_block_write_is_not_committed(tmp_path: Path) -> None:
    def fails(job: WriteJob, first: int) -> list[Part]:
        parts([7])(job, first)
        raise OSError("Spark is gone")

    block = block_at(tmp_path)
    with pytest.raises(OSError, match="Spark is gone"):
        block.write("overwrite", fails)
    assert not block.has_written
    block.write("overwrite", parts([8]))
    assert block.has_written
    block.commit()
    assert ids_at(tmp_path) == [8]


def test_aborted_block_leaves_no_files(tmp_path: Path) -> None:
    block = block_at(tmp_path / "frames")
    block.abort()
    block.write("error", parts([1], [2]))
    block.abort()
    assert [path for path in (tmp_path / "frames").rglob("*") if path.is_file()] == []
