"""Tests of the facts that `petastore inspect` reports: fields, sizes, row groups, partitions and indexes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore import Unischema, UnischemaField, open_dataset, write_dataset
from petastore.cli.inspect import DatasetFacts, FieldFacts, IndexFacts, Spread, dataset_facts
from petastore.codecs import NdarrayCodec
from petastore.indexing import FieldNotNullIndexer, SingleFieldIndexer, build_rowgroup_index


@pytest.fixture
def written(tmp_path: Path) -> DatasetFacts:
    schema = Unischema(
        "Shapes",
        [
            UnischemaField("id", np.int64),
            UnischemaField("fixed", np.float32, (2, 3), NdarrayCodec()),
            UnischemaField("free", np.uint8, (None,), NdarrayCodec(), nullable=True),
        ],
    )
    rows = [{"id": i, "fixed": np.zeros((2, 3), np.float32), "free": np.zeros(i, np.uint8)} for i in range(10)]
    write_dataset(str(tmp_path / "shapes"), schema, rows, rows_per_row_group=4)
    return dataset_facts(open_dataset(str(tmp_path / "shapes")))


def test_inspect_reports_codec_and_stored_type_of_fields(written: DatasetFacts) -> None:
    assert written.schema == "Shapes"
    assert written.fields == (
        FieldFacts("id", "int64", (), False, None, None, "int64", False),
        FieldFacts("fixed", "float32", (2, 3), False, {"id": "ndarray"}, "NdarrayCodec()", "binary", False),
        FieldFacts("free", "uint8", (None,), True, {"id": "ndarray"}, "NdarrayCodec()", "binary", True),
    )


def test_inspect_counts_rows_and_bytes(written: DatasetFacts) -> None:
    assert (written.files, written.row_groups, written.rows) == (1, 3, 10)
    assert written.rows_of_row_groups == Spread(smallest=2, median=4, largest=4)
    assert written.histogram == (1, *[0] * 14, 2)
    assert written.decoded_bytes == 10 * (8 + 2 * 3 * 4)
    assert written.fields_of_varying_size == ("free",)
    assert 0 < written.bytes_of_row_groups.smallest <= written.stored_bytes
    assert written.page_bytes > 0
    assert "petastore" in written.writer


def test_differences_between_files_are_reported_as_json(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": pa.array([1], pa.int32())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": [1], "y": ["a"]}), tmp_path / "b.parquet")
    facts = json.loads(json.dumps(dataclasses.asdict(dataset_facts(open_dataset(tmp_path)))))
    one, other = {"files": 1, "example": "a.parquet"}, {"files": 1, "example": "b.parquet"}
    assert facts["differences"] == [
        {"name": "x", "stored": [{"type": "int32", **one}, {"type": "int64", **other}]},
        {"name": "y", "stored": [{"type": None, **one}, {"type": "string", **other}]},
    ]
    assert [field["stored"] for field in facts["fields"]] == ["int64", "string"]


def test_inspect_facts_are_json(written: DatasetFacts) -> None:
    facts = json.loads(json.dumps(dataclasses.asdict(written)))
    assert facts["fields"][2]["shape"] == [None]
    assert facts["rows_of_row_groups"] == {"smallest": 2, "median": 4, "largest": 4}


def test_inspect_describes_partitioned_plain_parquet(tmp_path: Path) -> None:
    for day, rows in (("2026-01-01", 3), ("2026-02-01", 4)):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(pa.table({"x": pa.array(range(rows), pa.uint16())}), tmp_path / f"day={day}" / "a.parquet")
    facts = dataset_facts(open_dataset(str(tmp_path)))
    assert facts.schema is None
    assert [(field.name, field.dtype, field.stored) for field in facts.fields] == [
        ("x", "uint16", "uint16"),
        ("day", facts.fields[1].dtype, None),
    ]
    assert [(partition.name, partition.values) for partition in facts.partitions] == [
        ("day", ("2026-01-01", "2026-02-01"))
    ]
    assert "parquet-cpp-arrow" in facts.writer


def test_inspect_lists_indexes_with_problems(tmp_path: Path) -> None:
    schema = Unischema("ids", [UnischemaField("id", np.int64)])
    url = str(tmp_path / "ids")
    write_dataset(url, schema, [{"id": number} for number in range(4)])
    build_rowgroup_index(url, indexers=[SingleFieldIndexer("by_id", "id"), FieldNotNullIndexer("has_id", "id")])
    assert dataset_facts(open_dataset(url)).indexes == (
        IndexFacts("by_id", ("id",), 4, None),
        IndexFacts("has_id", ("id",), None, None),
    )
    (tmp_path / "ids" / "_petastore" / "indexes" / "has_id.arrow").write_bytes(b"no Arrow")
    assert [index.problem is None for index in dataset_facts(open_dataset(url)).indexes] == [True, False]


def test_inspect_reports_petastorm_indexes(repository: Path) -> None:
    facts = dataset_facts(open_dataset(repository / "tests" / "fixtures" / "petastorm-0.13.1" / "Meadow"))
    assert facts.indexes == (
        IndexFacts("by_id", ("id",), 36, None),
        IndexFacts("has_title", ("title",), None, None),
    )


def test_row_group_size_range_is_zero_without_row_groups() -> None:
    assert Spread.of(np.empty(0, np.int64)) == Spread(0, 0, 0)
