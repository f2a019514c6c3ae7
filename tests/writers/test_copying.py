"""Tests of copying a dataset: unchanged encoded cells, and partition values as columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore import Unischema, UnischemaField, make_reader, open_dataset, write_dataset
from petastore.codecs import CompressedNdarrayCodec, NdarrayCodec
from petastore.errors import DatasetExistsError, InvalidArgumentError
from petastore.writers.copying import copy_cells
from petastore.writers.generate import generate_metadata


def test_copy_keeps_encoded_cells_unchanged(tmp_path: Path) -> None:
    fields = [
        UnischemaField("point", "float32", (2,), NdarrayCodec()),
        UnischemaField("free", "int16", (None,), CompressedNdarrayCodec(), nullable=True),
    ]
    cells = [
        {"point": np.full(2, n, np.float32), "free": np.arange(n, dtype=np.int16) if n else None} for n in range(9)
    ]
    write_dataset(tmp_path / "arrays", Unischema("array", fields), cells, rows_per_row_group=4)
    copy_cells(tmp_path / "arrays", tmp_path / "copy")
    stored = [pq.read_table(open_dataset(tmp_path / name).paths[0]) for name in ("arrays", "copy")]
    assert stored[0].equals(stored[1])


def test_copy_turns_partitions_into_columns(tmp_path: Path) -> None:
    table = pa.table({"id": [1, 2, 3], "day": ["mon", "tue", "mon"]})
    pq.write_to_dataset(table, tmp_path / "days", partition_cols=["day"])
    fields = [UnischemaField("id", "int64", nullable=True), UnischemaField("day", str, nullable=True)]
    generate_metadata(tmp_path / "days", Unischema("day", fields))
    copy_cells(tmp_path / "days", tmp_path / "copy")
    assert open_dataset(tmp_path / "copy").partition_names == ()
    with make_reader(str(tmp_path / "copy")) as reader:
        assert sorted((int(row.id), row.day) for row in reader) == [(1, "mon"), (2, "tue"), (3, "mon")]


def test_copy_raises_inside_its_source_and_over_other_files(tmp_path: Path) -> None:
    schema = Unischema("id", [UnischemaField("id", "int64")])
    for name in ("source", "other"):
        write_dataset(tmp_path / name, schema, [{"id": 1}])
    with pytest.raises(InvalidArgumentError, match="the target must be outside the source"):
        copy_cells(tmp_path / "source", tmp_path / "source" / "copy")
    with pytest.raises(
        DatasetExistsError, match=r"the target.*must be empty, got 4 files\. Choose another URL, or overwrite them"
    ):
        copy_cells(tmp_path / "source", tmp_path / "other")
    with pytest.raises(InvalidArgumentError, match=r"not_null_fields must name fields of.*\('id'\), got 'nosuch'"):
        copy_cells(tmp_path / "source", tmp_path / "copy", not_null_fields=["nosuch"])


def test_copy_to_an_existing_empty_directory(tmp_path: Path) -> None:
    write_dataset(tmp_path / "source", Unischema("id", [UnischemaField("id", "int64")]), [{"id": 1}])
    (tmp_path / "copy").mkdir()
    assert copy_cells(tmp_path / "source", tmp_path / "copy").num_rows == 1
