"""Tests of decoded row groups as Arrow batches for Spark: the code of Spark's workers, without Spark."""

from __future__ import annotations

import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import petastore
from petastore import Unischema, UnischemaField
from petastore.codecs import CompressedImageCodec, NdarrayCodec
from petastore.errors import DecodeError, InvalidArgumentError, SchemaError
from petastore.schema.arrow import storage_schema
from petastore.spark.decoded import DecodedRowGroups, plain_batch, plain_schema

PETASTORM = ["petastorm-0.13.1/Meadow", "petastorm-legacy/0.5.1", "petastorm-legacy/0.7.6"]


def batches(groups: DecodedRowGroups) -> list[Any]:
    plain = plain_schema(groups.schema)
    return [plain_batch(part, plain) for group in range(len(groups)) for part in groups.parts(group)]


def same(stored: Any, value: Any) -> bool:
    if value is None or stored is None:
        return stored is value
    found = np.asarray(stored, dtype=object if isinstance(value, Decimal) else None)
    expected = np.asarray(value)
    if expected.dtype.kind == "M":
        return bool(np.array_equal(found.astype(expected.dtype), expected))
    return found.size == expected.size == 0 or bool((found == expected).all())


@pytest.mark.parametrize("name", PETASTORM)
def test_petastorm_dataset_becomes_a_dataframe_of_reader_values(fixtures_root: Path, name: str) -> None:
    dataset = petastore.open_dataset(fixtures_root / name)
    groups = pickle.loads(pickle.dumps(DecodedRowGroups(dataset)))  # noqa: S301 - our own bytes
    found = [row for batch in batches(groups) for row in batch.to_pylist()]
    with petastore.make_reader(fixtures_root / name, shuffle_row_groups=False) as reader:
        expected = list(reader)
    assert len(found) == len(expected) > 0
    for stored, row in zip(found, expected, strict=True):
        for field, value in row._asdict().items():
            assert same(stored[field], value), field


def test_dataset_as_dataframe_splits_row_groups_into_batches(tmp_path: Path) -> None:
    schema = Unischema("x", [UnischemaField("x", "uint8", (100,), NdarrayCodec())])
    rows = [{"x": np.full(100, n, "uint8")} for n in range(25)]
    petastore.write_dataset(tmp_path / "x", schema, rows, rows_per_row_group=20)
    groups = DecodedRowGroups(petastore.open_dataset(tmp_path / "x"), part_bytes=1000)
    assert [[len(part["x"]) for part in groups.parts(group)] for group in range(len(groups))] == [[10, 10], [5]]
    assert [row["x"][0] for batch in batches(groups) for row in batch.to_pylist()] == list(range(25))


def test_dataset_as_dataframe_keeps_nulls(tmp_path: Path) -> None:
    fields = [
        UnischemaField("number", "uint32", nullable=True),
        UnischemaField("text", str, nullable=True),
        UnischemaField("fixed", "float32", (2,), NdarrayCodec(), nullable=True),
        UnischemaField("free", "int8", (None,), NdarrayCodec(), nullable=True),
        UnischemaField("image", "uint8", (2, 2), CompressedImageCodec("png"), nullable=True),
    ]
    full = {
        "number": 7,
        "text": "a",
        "fixed": np.ones(2, "f4"),
        "free": np.ones(3, "i1"),
        "image": np.ones((2, 2), "u1"),
    }
    petastore.write_dataset(tmp_path / "x", Unischema("x", fields), [{}, full, {}])
    groups = DecodedRowGroups(petastore.open_dataset(tmp_path / "x"))
    (batch,) = batches(groups)
    assert batch.schema == storage_schema(plain_schema(groups.schema))
    nothing = dict.fromkeys(full)
    some = {"number": 7, "text": "a", "fixed": [1, 1], "free": [1, 1, 1], "image": [[1, 1], [1, 1]]}
    assert batch.to_pylist() == [nothing, some, nothing]


def test_dataset_as_dataframe_names_an_undecodable_cell(tmp_path: Path) -> None:
    stored = Unischema("x", [UnischemaField("x", bytes)])
    good = NdarrayCodec().encode(UnischemaField("x", "uint8", (2,)), np.zeros(2, "uint8"))
    petastore.write_dataset(tmp_path / "x", stored, [{"x": good}, {"x": good}, {"x": b"bad"}], rows_per_row_group=2)
    dataset = petastore.open_dataset(tmp_path / "x")
    declared = Unischema("x", [UnischemaField("x", "uint8", (2,), NdarrayCodec())])
    groups = DecodedRowGroups(petastore.Dataset(dataset.location, declared, dataset.inventory, (), "a test", True))
    with pytest.raises(DecodeError) as caught:
        list(groups.parts(1))
    assert (caught.value.column, caught.value.row_group, caught.value.row) == ("x", 1, 0)


def test_dataset_as_dataframe_raises_for_unsupported_types() -> None:
    for field in (UnischemaField("c", "complex64", (2,), NdarrayCodec()), UnischemaField("o", object)):
        with pytest.raises(SchemaError, match=f"field '{field.name}' must have a type that a DataFrame can hold, got"):
            plain_schema(Unischema("x", [UnischemaField("id", "int64"), field]))


def test_dataset_as_dataframe_raises_for_unknown_columns(tmp_path: Path) -> None:
    petastore.write_dataset(tmp_path / "x", Unischema("x", [UnischemaField("id", "int64")]), [])
    with pytest.raises(InvalidArgumentError, match="nothing"):
        DecodedRowGroups(petastore.open_dataset(tmp_path / "x"), ["nothing"])
