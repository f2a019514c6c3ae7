"""Tests of null values and Parquet statistics: loaders raise at creation if footers count nulls, else at the batch."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore.adapters.torch import DataLoader, ReaderDataset
from petastore.errors import DecodeError


def test_loader_raises_for_nulls_in_statistics_before_the_first_batch(tmp_path: Path) -> None:
    ages = pa.table({"id": range(100), "age": [None if number == 99 else number for number in range(100)]})
    pq.write_table(ages, tmp_path / "a.parquet", row_group_size=10)
    with petastore.make_batch_reader(str(tmp_path)) as reader:
        with pytest.raises(
            DecodeError,
            match=r"column 'age', row group 9 in a\.parquet: nulls= must be set .* 1 of 10 values .*\. Pass nulls=",
        ):
            DataLoader(reader, batch_size=10)
        assert reader.diagnostics["items_produced"] == 0
        assert sum(len(batch["age"]) for batch in DataLoader(reader, batch_size=10, nulls="mask")) == 100


def test_loader_raises_early_only_for_rows_that_will_be_read(tmp_path: Path) -> None:
    ages = pa.table({"id": range(100), "age": [None if number == 99 else number for number in range(100)]})
    pq.write_table(ages, tmp_path / "a.parquet", row_group_size=10)
    url = str(tmp_path)
    with petastore.make_batch_reader(url, filters=petastore.col("id") < 95) as reader:
        assert sum(len(batch["id"]) for batch in DataLoader(reader, batch_size=10)) == 95
    pq.write_table(ages, tmp_path / "a.parquet", row_group_size=10, write_statistics=False)
    with petastore.make_batch_reader(url, shuffle_row_groups=False) as reader:
        batches = iter(DataLoader(reader, batch_size=10))
        with pytest.raises(DecodeError, match=r"column 'age': nulls= must be set .* 1 of 10 values .*\. Pass nulls="):
            list(batches)
    assert len(ReaderDataset(url)) == 100  # counted in single rows, which may contain None
    with pytest.raises(DecodeError, match="column 'age'"):
        list(ReaderDataset(url, batch_size=10))


def test_loader_does_not_check_files_of_other_hosts(tmp_path: Path) -> None:
    schema = petastore.Unischema("x", [petastore.UnischemaField("x", "int64", nullable=True)])
    for part in range(2):
        rows = {"x": range(10 * part, 10 * part + 10)}
        petastore.write_dataset(tmp_path / "d", schema, rows, mode="append" if part else "error")
    dataset = petastore.open_dataset(str(tmp_path / "d"))  # with a manifest, so that opening did not read the footers
    (tmp_path / "d" / dataset.inventory.files[1].path).unlink()
    with petastore.make_batch_reader(dataset, cur_shard=0, shard_count=2, shuffle_row_groups=False) as reader:
        assert [batch["x"].tolist() for batch in DataLoader(reader, batch_size=10)] == [list(range(10))]
