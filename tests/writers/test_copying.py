"""Tests of copying a dataset: unchanged encoded cells, and partition values as columns."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore import Unischema, UnischemaField, make_reader, open_dataset, write_dataset
from petastore.codecs import CompressedNdarrayCodec, NdarrayCodec
from petastore.errors import DatasetExistsError, EncodeError, InvalidArgumentError, SchemaError
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
        DatasetExistsError,
        match=r"the target.*must be empty, got 4 files\. .* with overwrite_output=True \(--overwrite-output\)",
    ):
        copy_cells(tmp_path / "source", tmp_path / "other")
    with pytest.raises(InvalidArgumentError, match=r"not_null_fields must name fields of.*\('id'\), got 'nosuch'"):
        copy_cells(tmp_path / "source", tmp_path / "copy", not_null_fields=["nosuch"])


def test_copy_of_plain_parquet_has_the_inferred_schema(tmp_path: Path) -> None:
    table = pa.table(
        {
            "small": pa.array([1, None], pa.uint8()),
            "exact": pa.array([Decimal("9" * 38), None], pa.decimal128(38, 0)),
            "time": pa.array([dt.time(1, 2), None], pa.time32("ms")),
            "word": pa.array(["a", None]).dictionary_encode(),
            "list": pa.array([[1, 2], None]),
            "geo": pa.array([{"lat": 1.5}, None]),
        }
    )
    (tmp_path / "plain" / "day=7").mkdir(parents=True)
    pq.write_table(table, tmp_path / "plain" / "day=7" / "0.parquet")
    pq.write_table(table.append_column("day", pa.array([7, 7], pa.int8())), tmp_path / "plain" / "day=7" / "1.parquet")
    for _ in range(2):
        copy_cells(tmp_path / "plain", tmp_path / "copy", overwrite_output=True)
        copied, plain = open_dataset(tmp_path / "copy"), open_dataset(tmp_path / "plain")
        assert copied.has_schema_document
        assert copied.to_arrow() == plain.to_arrow()
        assert copied.arrow_schema.field("exact").type == pa.decimal128(38, 0)
        generate_metadata(tmp_path / "plain")


def test_copy_of_plain_parquet_raises_for_columns_that_it_cannot_copy(tmp_path: Path) -> None:
    plain, copy = tmp_path / "plain", tmp_path / "copy"
    plain.mkdir()
    for number, table in enumerate([{"id": [1], "x": [1], "list": [[1, None]]}, {"id": [2], "x": ["a"], "list": [[]]}]):
        pq.write_table(pa.table(table), plain / f"{number}.parquet")
    with pytest.raises(SchemaError, match=r"column 'x' must have types that unify.* in field_regex \(--columns\)"):
        copy_cells(plain, copy)
    with pytest.raises(EncodeError, match=r"column 'list': lists must not contain nulls.*field_regex"):
        copy_cells(plain, copy, ["id", "list"])
    assert copy_cells(plain, copy, ["id"]).num_rows == 2


def test_copy_to_an_existing_empty_directory(tmp_path: Path) -> None:
    write_dataset(tmp_path / "source", Unischema("id", [UnischemaField("id", "int64")]), [{"id": 1}])
    (tmp_path / "copy").mkdir()
    assert copy_cells(tmp_path / "source", tmp_path / "copy").num_rows == 1
