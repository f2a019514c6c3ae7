"""Tests of datasets whose files have slightly different Arrow types: dictionary indices, nullable list elements."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore.adapters.torch import MapDataset
from petastore.readers.random_access import RandomAccess


@pytest.mark.parametrize("row_group_size", [None, 30])
def test_dictionary_values_of_two_files_may_exceed_the_int8_index_type(
    tmp_path: Path, row_group_size: int | None
) -> None:
    kind = pa.dictionary(pa.int8(), pa.string())
    for file in range(2):
        names = pa.array([f"user {100 * file + number}" for number in range(100)]).dictionary_encode().cast(kind)
        pq.write_table(pa.table({"name": names}), tmp_path / f"{file}.parquet", row_group_size=row_group_size)
    with petastore.make_reader(tmp_path, shuffle_row_groups=False) as reader:
        assert [row.name for row in reader] == [f"user {number}" for number in range(200)]
    with petastore.make_batch_reader(tmp_path, shuffle_row_groups=False) as reader:
        (batch,) = reader.iter_batches(200)
        assert batch["name"].tolist() == [f"user {number}" for number in range(200)]


def test_random_access_reads_files_that_differ_in_nullable_list_elements(tmp_path: Path) -> None:
    for file in range(2):
        element = pa.field("element", pa.int64(), nullable=bool(file))
        pq.write_table(pa.table({"x": pa.array([[file], [7]], pa.list_(element))}), tmp_path / f"{file}.parquet")
    taken = RandomAccess(petastore.open_dataset(tmp_path)).take([0, 2])["x"]
    assert [cell.tolist() for cell in taken] == [[0], [1]]
    assert [cell.tolist() for cell in MapDataset(tmp_path).rows.take([3, 0])["x"]] == [[7], [0]]
