"""Tests of cells that Petastorm wrote: they decode exactly to the values that Petastorm's reader returned."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore.codecs import CompressedImageCodec, CompressedNdarrayCodec, NdarrayCodec, ScalarCodec
from petastore.codecs.registry import codec_of
from petastore.schema import Unischema, UnischemaField
from petastore.testing.codec_laws import assert_declared, empty_column

# The schema that Petastorm pickled, written by hand. `day` is a partition key, and in no file.
MEADOW = Unischema(
    "Meadow",
    [
        UnischemaField("id", "int64", (), ScalarCodec("bigint")),
        UnischemaField("day", str, (), ScalarCodec("string")),
        UnischemaField("tiny", "int8", (), ScalarCodec("tinyint")),
        UnischemaField("small", "uint8", (), ScalarCodec("smallint")),
        UnischemaField("ratio", "float32", (), ScalarCodec("float")),
        UnischemaField("score", "float64", (), None, nullable=True),
        UnischemaField("flag", bool, (), ScalarCodec("boolean")),
        UnischemaField("title", str, (), ScalarCodec("string"), nullable=True),
        UnischemaField("price", Decimal, (), ScalarCodec("decimal(10,4)")),
        UnischemaField("photo", "uint8", (None, None, 3), CompressedImageCodec("png")),
        UnischemaField("thumb", "uint8", (16, 24, 3), CompressedImageCodec("jpeg", 90)),
        UnischemaField("depth", "uint16", (12, 10), CompressedImageCodec("png")),
        UnischemaField("pose", "float64", (4, 4), NdarrayCodec()),
        UnischemaField("cloud", "float32", (None, 3), NdarrayCodec(), nullable=True),
        UnischemaField("mask", bool, (8, 8), CompressedNdarrayCodec()),
        UnischemaField("names", str, (None,), NdarrayCodec(), nullable=True),
    ],
)


@pytest.fixture(scope="module")
def expected(fixtures_root: Path) -> dict[str, Any]:
    with np.load(fixtures_root / "petastorm-0.13.1" / "Meadow.expected.npz") as opened:
        return {name: opened[name] for name in opened.files}


@pytest.fixture(scope="module")
def files(fixtures_root: Path) -> list[tuple[str, pa.Table]]:
    """Return the partition value and the table of each file."""
    folders = sorted((fixtures_root / "petastorm-0.13.1" / "Meadow").glob("day=*"))
    return [
        (folder.name.removeprefix("day="), pq.ParquetFile(path).read())
        for folder in folders
        for path in folder.glob("*.parquet")
    ]


def column_of(table: pa.Table, name: str) -> pa.Array:
    return pa.concat_arrays(table[name].chunks)


def assert_as_expected(field: UnischemaField, wanted: Any, found: Any) -> None:
    assert_declared(field, found)
    if field.numpy_dtype is Decimal:
        assert found == Decimal(str(wanted))
    else:
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("field", [field for field in MEADOW if field.name != "day"], ids=lambda field: field.name)
def test_petastorm_cells_decode_to_the_values_that_petastorm_reads(
    field: UnischemaField, files: list[tuple[str, pa.Table]], expected: dict[str, Any]
) -> None:
    codec, seen = codec_of(field), set()
    for _, table in files:
        known = column_of(table, field.name).is_valid()
        ids = table["id"].filter(known).to_pylist()
        cells = column_of(table, field.name).filter(known)
        out = empty_column(field, len(cells))
        codec.decode_column(cells, field, out)
        for row, found, cell in zip(ids, out, cells.to_pylist(), strict=True):
            wanted = expected[f"{row}/{field.name}"]
            assert_as_expected(field, wanted, found)
            assert_as_expected(field, wanted, codec.decode(field, cell))
            seen.add(f"{row}/{field.name}")
    assert seen == {name for name in expected if name.endswith(f"/{field.name}")}


def test_partition_values_decode_to_the_values_that_petastorm_reads(
    files: list[tuple[str, pa.Table]], expected: dict[str, Any]
) -> None:
    days = {row: day for day, table in files for row in table["id"].to_pylist()}
    assert len(days) == 36
    assert all(MEADOW.day.codec.decode(MEADOW.day, day) == str(expected[f"{row}/day"]) for row, day in days.items())  # type: ignore[union-attr]


def test_values_written_by_petastorm_round_trip_through_our_codecs(files: list[tuple[str, pa.Table]]) -> None:
    _, table = files[0]
    for field in MEADOW:
        if field.name != "day":
            codec = codec_of(field)
            cells = column_of(table, field.name).drop_null()
            out = empty_column(field, len(cells))
            codec.decode_column(cells, field, out)
            again = codec.encode_column(list(out), field)
            assert again.type == cells.type
            if not isinstance(field.codec, CompressedImageCodec) or field.codec.image_codec == "png":
                back = empty_column(field, len(cells))
                codec.decode_column(again, field, back)
                for one, other in zip(out, back, strict=True):
                    np.testing.assert_array_equal(one, other)
