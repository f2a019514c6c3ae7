"""Tests of `Dataset.head`, `to_arrow` and `to_pandas`: the rows of an unshuffled reader, with minimal reads."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore import Dataset, Unischema, UnischemaField, make_reader, open_dataset, write_dataset
from petastore.codecs import NdarrayCodec
from petastore.dataset.stored_cells import first_rows
from petastore.errors import DecodeError, InvalidArgumentError, PetastoreError, SchemaError

SCHEMA = Unischema(
    "Rows",
    [
        UnischemaField("id", np.int64),
        UnischemaField("score", np.float64, nullable=True),
        UnischemaField("blob", np.uint8, (None,), NdarrayCodec()),
    ],
)


def row(number: int) -> dict[str, Any]:
    noise = np.random.default_rng(number).integers(0, 255, 50_000, "uint8")
    return {"id": number, "score": None if number % 3 else number / 2, "blob": noise}


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """Write one file with row groups of 4, 4 and 2 rows, of up to 200 kB, and return the dataset."""
    write_dataset(tmp_path / "rows", SCHEMA, map(row, range(10)), rows_per_row_group=4)
    return open_dataset(tmp_path / "rows")


def equal(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    return found.keys() == expected.keys() and all(
        found[name] is None if value is None else np.array_equal(found[name], value) for name, value in expected.items()
    )


@pytest.mark.parametrize("count", [1, 3, 4, 5, 9, 10, 11])
def test_head_returns_the_rows_written_first(dataset: Dataset, count: int) -> None:
    found = list(first_rows(dataset, tuple(dataset.schema), count))
    assert len(found) == min(count, 10)
    assert all(equal(one, row(number)) for number, one in enumerate(found))


def test_first_rows_equal_those_of_a_reader_of_a_petastorm_dataset(fixtures_root: Path) -> None:
    url = fixtures_root / "petastorm-0.13.1" / "Meadow"
    dataset = open_dataset(url)
    assert "day" in dataset.partition_names
    with make_reader(url, shuffle_row_groups=False) as reader:
        expected = [next(reader)._asdict() for _ in range(7)]
    found = list(first_rows(dataset, tuple(dataset.schema), 7))
    assert all(equal(one, other) for one, other in zip(found, expected, strict=True))


def test_head_skips_empty_row_groups(tmp_path: Path) -> None:
    with pq.ParquetWriter(tmp_path / "a.parquet", pa.schema([("x", pa.int64())])) as writer:
        for values in ([], [1], [], [2, 3]):
            writer.write_table(pa.table({"x": pa.array(values, pa.int64())}))
    dataset = open_dataset(tmp_path)
    assert [one["x"] for one in first_rows(dataset, tuple(dataset.schema), 2)] == [1, 2]


def test_head_reads_a_row_group_only_when_it_is_needed(dataset: Dataset, tmp_path: Path) -> None:
    rows = first_rows(dataset, tuple(dataset.schema), 10)
    (file,) = (tmp_path / "rows").glob("*.parquet")
    next(rows)
    file.unlink()
    assert next(rows)["id"] == 1
    assert [next(rows)["id"], next(rows)["id"]] == [2, 3]
    with pytest.raises(PetastoreError):
        next(rows)


def wiped(folder: Path, *, group: int, column: int, keep: int = 0) -> None:
    """Overwrite a column chunk of the only file with zeros, from byte `keep` on."""
    (path,) = folder.glob("*.parquet")
    chunk = pq.ParquetFile(path).metadata.row_group(group).column(column)
    start = min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)
    with path.open("r+b") as file:
        file.seek(start + keep)
        file.write(bytes(chunk.total_compressed_size - keep))


def test_head_does_not_read_later_row_groups(dataset: Dataset, tmp_path: Path) -> None:
    for column in range(3):
        wiped(tmp_path / "rows", group=1, column=column)
    dataset = open_dataset(tmp_path / "rows")
    assert [one["id"] for one in first_rows(dataset, tuple(dataset.schema), 4)] == [0, 1, 2, 3]
    with pytest.raises(DecodeError):
        list(first_rows(dataset, tuple(dataset.schema), 5))


def test_head_reads_only_the_selected_columns(dataset: Dataset, tmp_path: Path) -> None:
    wiped(tmp_path / "rows", group=0, column=2)
    dataset = open_dataset(tmp_path / "rows")
    assert [one["score"] for one in first_rows(dataset, dataset.fields_of(["score"]), 4)] == [0, None, None, 1.5]
    with pytest.raises(DecodeError):
        list(first_rows(dataset, tuple(dataset.schema), 1))


def test_head_does_not_read_the_last_pages_of_a_large_row_group(tmp_path: Path) -> None:
    table = pa.table({"x": pa.array(np.random.default_rng(0).random(1_000_000))})
    pq.write_table(table, tmp_path / "a.parquet", compression="none", use_dictionary=False)
    wiped(tmp_path, group=0, column=0, keep=4_000_000)
    dataset = open_dataset(tmp_path)
    found = [one["x"] for one in first_rows(dataset, tuple(dataset.schema), 5)]
    assert found == table["x"][:5].to_pylist()
    with pytest.raises(DecodeError):
        list(first_rows(dataset, tuple(dataset.schema), 1_000_000))


def test_head_reports_a_damaged_cell_with_its_row(tmp_path: Path) -> None:
    write_dataset(tmp_path / "rows", SCHEMA, map(row, range(4)), rows_per_row_group=2)
    (path,) = (tmp_path / "rows").glob("*.parquet")
    table = pq.read_table(path)
    blobs = table["blob"].to_pylist()
    blobs[3] = b"no array"
    table = table.set_column(2, table.schema.field("blob"), pa.array(blobs, pa.binary()))
    for file in (tmp_path / "rows").rglob("*"):
        if file.is_file() and file.name not in ("_common_metadata", path.name):
            file.unlink()
    pq.write_table(table, path, row_group_size=2)
    dataset = open_dataset(tmp_path / "rows")
    with pytest.raises(DecodeError, match=f"column 'blob', row 1 of row group 1 in {path.name}"):
        list(first_rows(dataset, tuple(dataset.schema), 4))


def test_head_raises_for_values_that_readers_reject(tmp_path: Path) -> None:
    schema = Unischema("Large", [UnischemaField("x", "uint8", (2**29,), NdarrayCodec())])
    write_dataset(tmp_path / "large", schema, [])
    dataset = open_dataset(tmp_path / "large")
    with pytest.raises(
        InvalidArgumentError,
        match=r"max_cell_bytes must be at least 536,870,912 for field 'x' \(uint8 of shape \(536870912,\)\), got",
    ):
        list(first_rows(dataset, tuple(schema), 1))


def everything(folder: Path) -> Dataset:
    """Write columns of every kind with null values, in row groups of two, and return the dataset."""
    columns = {
        "n": pa.array([1, None, 3], pa.uint8()),
        "day": pa.array([1, 2, None], pa.date32()),
        "at": pa.array([1, 2, 3], pa.timestamp("us", "UTC")),
        "took": pa.array([1, None, 3], pa.duration("s")),
        "word": ["a", None, "c"],
        "pose": np.arange(6, dtype=np.float32).reshape(3, 2),
        "ragged": [[1], [2, 3], None],
        "patch": np.arange(12, dtype=np.uint8).reshape(3, 2, 2),
        "struct": pa.array([{"x": 1}, None, {"x": 3}]),
    }
    write_dataset(folder, columns, rows_per_row_group=2)
    return open_dataset(folder)


def test_head_gives_the_rows_of_an_unshuffled_reader(tmp_path: Path) -> None:
    dataset = everything(tmp_path / "x")
    with make_reader(tmp_path / "x", shuffle_row_groups=False) as reader:
        expected = list(reader)
    for count in (0, 2, 3, 9):
        found = dataset.head(count)
        assert len(found) == min(count, 3)
        assert all(equal(one._asdict(), other._asdict()) for one, other in zip(found, expected, strict=False))
    assert [tuple(row) for row in dataset.head(1, ["n", "word"])] == [(1, "a")]
    with pytest.raises(InvalidArgumentError, match="n"):
        dataset.head(-1)


def test_to_arrow_gives_decoded_values_of_the_declared_dtypes(tmp_path: Path) -> None:
    dataset = everything(tmp_path / "x")
    table = dataset.to_arrow()
    assert table["n"].type == pa.uint8()
    assert table["took"].type == pa.duration("s")
    found = table.drop_columns(["day", "at", "took"]).to_pylist()
    assert found == [
        {"n": 1, "word": "a", "pose": [0, 1], "ragged": [1], "patch": [[0, 1], [2, 3]], "struct": {"x": 1}},
        {"n": None, "word": None, "pose": [2, 3], "ragged": [2, 3], "patch": [[4, 5], [6, 7]], "struct": None},
        {"n": 3, "word": "c", "pose": [4, 5], "ragged": None, "patch": [[8, 9], [10, 11]], "struct": {"x": 3}},
    ]
    assert table["day"].cast(pa.int32()).to_pylist() == [1, 2, None]
    assert table["at"].cast(pa.int64()).to_pylist() == [1, 2, 3]
    assert table["took"].cast(pa.int64()).to_pylist() == [1, None, 3]
    assert dataset.to_arrow(1).num_rows == 1
    assert dataset.to_arrow(0, ["n", "pose"]).schema.names == ["n", "pose"]


def test_to_pandas_gives_nullable_dtypes_and_rows(tmp_path: Path) -> None:
    frame = everything(tmp_path / "x").to_pandas(2)
    assert len(frame) == 2
    assert str(frame["n"].dtype) == "UInt8"
    assert frame["word"].tolist()[0] == "a"
    assert frame["pose"][1].tolist() == [2.0, 3.0]


def test_to_arrow_raises_for_complex_numbers(tmp_path: Path) -> None:
    field = UnischemaField("c", "complex64", (2,), NdarrayCodec())
    write_dataset(tmp_path / "x", Unischema("complex", [field]), [{"c": np.zeros(2, np.complex64)}])
    with pytest.raises(SchemaError, match="Arrow has no type for complex64"):
        open_dataset(tmp_path / "x").to_arrow()


def test_to_arrow_keeps_the_precision_of_stored_decimals(tmp_path: Path) -> None:
    large, small = Decimal("12345678901234567890123456789.5"), Decimal("0.0000000000000000000000001")
    columns = {
        "large": pa.array([large, None], pa.decimal256(70, 30)),
        "small": pa.array([None, small], pa.decimal128(38, 25)),
        "lists": pa.array([[[small], [None]], None], pa.list_(pa.list_(pa.decimal128(38, 25)))),
        "words": pa.array([Decimal("1.5"), None], pa.decimal128(5, 1)).dictionary_encode(),
        "row": pa.array([{"price": large}, None], pa.struct({"price": pa.decimal128(38, 1)})),
    }
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    dataset = open_dataset(tmp_path)
    found = dataset.to_arrow()
    assert found.to_pylist() == pa.table(columns).to_pylist()
    assert found.schema.field("large").type == pa.decimal256(70, 30)
    assert dataset.to_arrow(columns=["row.price"]).to_pylist() == [{"row.price": large}, {"row.price": None}]
