"""Tests of writing columns (dict, Arrow, pandas, Polars, Hugging Face): inferred and given schemas."""

from __future__ import annotations

import datetime as dt
import shutil
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import petastore
from petastore.codecs import CompressedImageCodec, NdarrayCodec
from petastore.errors import EncodeError, InvalidArgumentError, SchemaError
from petastore.schema import Unischema, UnischemaField
from petastore.schema.arrow import storage_schema
from petastore.spark.dataframe import encode_batch
from petastore.writers import input_columns as module
from petastore.writers.encode import encode_chunks
from petastore.writers.input_columns import columns_of, encode_columns, infer_schema
from tests.arrow_values import of_arrow, of_petastore

COLUMNS: dict[str, Any] = {
    "id": np.arange(5),
    "word": ["a", None, "b", "", "ü"],
    "weight": [1.5, float("nan"), 0.0, -1.0, 2.0],
    "vector": np.arange(10, dtype=np.float32).reshape(5, 2),
    "image": np.arange(60, dtype=np.uint8).reshape(5, 3, 4),
    "ragged": [[1, 2], [], [3], [4, 5, 6], [7]],
    "crop": [np.ones((2, 3), np.int16), None, np.zeros((2, 5), np.int16), np.ones((2, 0), np.int16), None],
    "day": np.array(["2026-01-01"] * 5, "datetime64[D]"),
    "is_new": [True, False, True, None, False],
}


def as_rows(columns: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def stored(data: Any, schema: Unischema) -> pa.Table:
    columns = columns_of(data)
    assert columns is not None
    return pa.Table.from_batches(list(encode_columns(columns, schema))).combine_chunks()


def test_infer_schema_of_a_dict_of_columns() -> None:
    assert infer_schema(COLUMNS, name="things") == Unischema(
        "things",
        [
            UnischemaField("id", np.int64),
            UnischemaField("word", np.str_, nullable=True),
            UnischemaField("weight", np.float64),
            UnischemaField("vector", np.float32, (2,)),
            UnischemaField("image", np.uint8, (3, 4), NdarrayCodec()),
            UnischemaField("ragged", np.int64, (None,)),
            UnischemaField("crop", np.int16, (2, None), NdarrayCodec(), True),
            UnischemaField("day", "datetime64[D]"),
            UnischemaField("is_new", np.bool_, nullable=True),
        ],
    )


def test_columns_are_stored_like_their_rows() -> None:
    schema = infer_schema(COLUMNS)
    by_rows, found = pa.Table.from_batches(list(encode_chunks(as_rows(COLUMNS), schema))), stored(COLUMNS, schema)
    assert found.drop_columns("weight").equals(by_rows.drop_columns("weight"))
    assert np.array_equal(found["weight"], by_rows["weight"], equal_nan=True)


@given(
    st.lists(
        st.tuples(st.integers(-5, 5), st.none() | st.text(max_size=3), st.none() | st.floats(allow_nan=False)),
        max_size=9,
    )
)
def test_arrow_columns_are_stored_like_their_rows(rows: list[tuple[Any, ...]]) -> None:
    schema = Unischema(
        "any",
        [
            UnischemaField("n", np.int64),
            UnischemaField("t", np.str_, nullable=True),
            UnischemaField("x", np.float64, nullable=True),
        ],
    )
    columns = {"n": [row[0] for row in rows], "t": [row[1] for row in rows], "x": [row[2] for row in rows]}
    table = pa.table(columns, pa.schema([("n", pa.int64()), ("t", pa.string()), ("x", pa.float64())]))
    expected = list(encode_chunks(as_rows(columns), schema))
    for data in (table, table.combine_chunks().to_reader(), Stream(table), table.to_pydict()):
        found = columns_of(data)
        assert found is not None
        assert list(encode_columns(found, schema)) == expected


class Stream:
    """An object with `__arrow_c_stream__`, as in Polars."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def test_pandas_dataframe_is_written_without_its_index() -> None:
    frame = pd.DataFrame(
        {
            "id": [1, 2, 3],
            "name": ["a", None, "c"],
            "score": [1.0, np.nan, 2.0],
            "kind": pd.Categorical(["x", "y", "x"]),
            "count": pd.array([1, None, 3], dtype="Int64"),
            "vector": [np.zeros(2), np.ones(3), np.zeros(0)],
            "patch": [np.zeros((2, 2), np.uint8)] * 3,
        },
        index=[7, 8, 9],
    )
    schema = infer_schema(frame)
    assert [(field.name, field.nullable) for field in schema] == [
        ("id", False),
        ("name", True),
        ("score", False),  # NaN is a number, not a null
        ("kind", False),
        ("count", True),
        ("vector", False),
        ("patch", False),
    ]
    found = stored(frame, schema)
    assert np.isnan(found["score"][1].as_py())
    assert found["count"].to_pylist() == [1, None, 3]
    assert found["kind"].to_pylist() == ["x", "y", "x"]
    assert found["vector"].to_pylist() == [[0.0, 0.0], [1.0, 1.0, 1.0], []]


def test_object_with_an_arrow_stream_is_written(tmp_path: Path) -> None:
    table = pa.table({"id": range(10), "word": list("abcdefghij")})
    petastore.write_dataset(tmp_path / "x", Stream(table), rows_per_row_group=4)
    with petastore.make_batch_reader(str(tmp_path / "x"), shuffle_row_groups=False) as reader:
        assert np.concatenate([batch.id for batch in reader]).tolist() == list(range(10))
        assert reader.schema["word"].nullable  # the stream declares it, and its rows are not inspected


def test_duckdb_relation_is_written_without_counting_its_rows(tmp_path: Path) -> None:
    shown: list[int] = []
    with duckdb.connect() as connection:
        relation = connection.sql("select i as x from range(3) t(i)")
        petastore.write_dataset(tmp_path / "x", relation, progress=shown.append)
    assert rows_of(tmp_path / "x") == [0, 1, 2]
    assert shown == [3]


def test_explicit_schema_encodes_columns(tmp_path: Path) -> None:
    schema = Unischema(
        "images",
        [UnischemaField("id", np.int32), UnischemaField("image", np.uint8, (8, 8, 3), CompressedImageCodec("png"))],
    )
    images = np.random.RandomState(1).randint(0, 256, (3, 8, 8, 3)).astype(np.uint8)
    petastore.write_dataset(tmp_path / "x", schema, {"id": np.arange(3, dtype=np.int32), "image": images})
    with petastore.make_reader(str(tmp_path / "x"), shuffle_row_groups=False) as reader:
        read = {int(row.id): row.image for row in reader}
    assert sorted(read) == [0, 1, 2]
    assert all(np.array_equal(image, images[number]) for number, image in read.items())


BITS = pa.array([{"at": 1, "took": 2}, None], pa.struct({"at": pa.timestamp("us", "UTC"), "took": pa.duration("ms")}))
READABLE: dict[str, pa.Array] = {
    "struct": pa.array([{"a": 1, "b": "x"}, {"a": None, "b": "y"}]),
    "struct of times": BITS,
    "list of structs": pa.array([[{"a": 1}, None], []]),
    "map": pa.array([[("k", 1), ("l", None)], None], pa.map_(pa.string(), pa.int64())),
    "list of lists": pa.array([[[1, 2], [3, 4]], [[5, 6]]]),
    "all null": pa.nulls(2),
    "list of nulls": pa.array([[None], []], pa.list_(pa.null())),
    "categories": pa.array(["a", None]).dictionary_encode(),
    "categories in a struct": pa.array(
        [{"c": "a"}, {"c": "b"}], pa.struct({"c": pa.dictionary(pa.int8(), pa.string())})
    ),
    "large text": pa.array(["a", "b"], pa.large_string()),
    "text view": pa.array(["a", "b"], pa.string_view()),
    "fixed bytes": pa.array([b"ab", None], pa.binary(2)),
    "fixed list": pa.array([[1, 2], None], pa.list_(pa.float32(), 2)),
    "large list": pa.array([["a"], []], pa.large_list(pa.string())),
    "tensor": pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(12, dtype=np.int16).reshape(2, 2, 3)),
    "duration": pa.array([1, None], pa.duration("s")),
    "time of day": pa.array([1, None], pa.time64("ns")),
    "day": pa.array([1, None], pa.date32()),
    "wide decimal": pa.array([Decimal("1.5"), None], pa.decimal128(30, 2)),
    "half": pa.array(np.array([1.5, -2], np.float16)),
    "unsigned": pa.array([2**64 - 1, None], pa.uint64()),
}


def rows_of(url: Path) -> list[Any]:
    with petastore.make_reader(str(url), shuffle_row_groups=False) as reader:
        return [row.x for row in reader]


@pytest.mark.parametrize("name", READABLE)
def test_write_dataset_writes_each_type_that_make_reader_reads(tmp_path: Path, name: str) -> None:
    """The values are the same for the table, its chunks, and the values that the reader returned."""
    table = pa.table({"x": READABLE[name]})
    (tmp_path / "plain").mkdir()
    pq.write_table(table, tmp_path / "plain" / "0.parquet")
    expected, schema = rows_of(tmp_path / "plain"), petastore.open_dataset(tmp_path / "plain").schema
    assert of_petastore(expected) == of_arrow(table["x"])
    petastore.write_dataset(tmp_path / "table", table)
    petastore.write_dataset(tmp_path / "chunks", pa.concat_tables([table.slice(0, 1), table.slice(1)]))
    petastore.write_dataset(tmp_path / "rows", schema, [{"x": value} for value in expected])
    petastore.write_dataset(tmp_path / "columns", schema, {"x": expected})
    for written in ("table", "chunks", "rows", "columns"):
        assert equal(rows_of(tmp_path / written), expected), written


def equal(found: list[Any], expected: list[Any]) -> bool:
    """Return whether values are equal; decimals may have different numbers of digits."""
    if all(value is None or isinstance(value, Decimal) for value in expected):
        return found == expected
    return bool(of_petastore(found) == of_petastore(expected))


@pytest.mark.parametrize("values", [[[1, None], [2], None], [[[1], [2, 3]], []], [{"a": 1}, {"b": [None]}], [None]])
def test_ragged_lists_are_read_back_as_objects(tmp_path: Path, values: list[Any]) -> None:
    petastore.write_dataset(tmp_path / "dict", {"x": values})
    petastore.write_dataset(tmp_path / "frame", pd.DataFrame({"x": pd.Series(values, dtype=object)}))
    expected = pa.array(values).to_pylist()
    assert rows_of(tmp_path / "dict") == rows_of(tmp_path / "frame") == expected


def test_decimals_keep_all_digits(tmp_path: Path) -> None:
    numbers = pa.table({"x": [Decimal("1234567890123456789012345678.25")], "y": [Decimal(10) ** 60 + 1]})
    petastore.write_dataset(tmp_path / "x", numbers)
    with petastore.make_reader(str(tmp_path / "x")) as reader:
        assert [tuple(row) for row in reader] == [tuple(numbers.to_pylist()[0].values())]


def test_decimals_keep_the_precision_and_scale_that_arrow_declares(tmp_path: Path) -> None:
    prices = pa.table({"x": pa.array([Decimal("1.10"), None, Decimal("-22.25")], pa.decimal128(10, 2))})
    tables: dict[str, Any] = {
        "table": prices,
        "reader": prices.to_reader(),
        "dict": {"x": prices["x"]},
        "dictionary": {"x": prices["x"].dictionary_encode()},
        "frame": prices.to_pandas(types_mapper=pd.ArrowDtype),
    }
    for name, table in tables.items():
        petastore.write_dataset(tmp_path / name, table)
        (file,) = (tmp_path / name).glob("*.parquet")
        assert pq.read_schema(file).field("x").type == pa.decimal128(10, 2), name
        assert [str(value) for value in rows_of(tmp_path / name)] == ["1.10", "None", "-22.25"], name


NESTED_TEXT = [[["a", "b"], ["c", "d"]], None]


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(pa.array(NESTED_TEXT), id="text"),
        pytest.param(pa.array([[["a"]]], pa.list_(pa.list_(pa.string(), 1), 1)), id="fixed size"),
        pytest.param(pa.array([[[b"a"]], None]), id="bytes"),
        pytest.param(pa.array([[[Decimal("1.5")]]]), id="decimals"),
        pytest.param(pa.array([[Decimal("1" * 30)]], pa.list_(pa.decimal128(38, 0))), id="precision"),
        pytest.param(pa.array([[Decimal("0.1")]], pa.list_(pa.decimal128(38, 38))), id="scale"),
        pytest.param(pa.array([[Decimal("1" * 50)]], pa.list_(pa.decimal256(60, 0))), id="decimal256"),
        pytest.param(pa.array([[Decimal("0." + "1" * 20)]]), id="Python decimals"),
    ],
)
def test_lists_that_arrays_cannot_hold_are_read_back_as_lists(tmp_path: Path, column: pa.Array) -> None:
    table = pa.table({"x": column})
    for name, data in {"table": table, "reader": table.to_reader(), "dict": table.to_pydict()}.items():
        petastore.write_dataset(tmp_path / name, data)
        assert rows_of(tmp_path / name) == column.to_pylist(), name


def test_python_decimals_get_a_wide_precision_for_appends(tmp_path: Path) -> None:
    for first, later in (("1.5", "123456789.123"), ("0.25", "-10")):
        url = tmp_path / first
        petastore.write_dataset(url, {"x": [Decimal(first)]})
        petastore.write_dataset(url, pd.DataFrame({"x": [Decimal(later)]}), mode="append")
        assert rows_of(url) == [Decimal(first), Decimal(later)]


def test_reader_rows_are_written_with_its_schema(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    pq.write_table(pa.table({"x": BITS, "n": [1, 2]}), tmp_path / "plain" / "0.parquet")
    with petastore.make_reader(str(tmp_path / "plain"), shuffle_row_groups=False) as reader:
        petastore.write_dataset(tmp_path / "again", reader.schema, reader)
    assert of_petastore(rows_of(tmp_path / "again")) == of_arrow(BITS)


def test_uuids_are_stored_as_16_bytes(tmp_path: Path) -> None:
    ids = [uuid.UUID(int=number) for number in range(3)]
    expected = [one.bytes for one in ids]
    petastore.write_dataset(tmp_path / "frame", pd.DataFrame({"x": ids}))
    petastore.write_dataset(tmp_path / "dict", {"x": [*ids, None]})
    schema = Unischema("ids", [UnischemaField("x", bytes)])
    petastore.write_dataset(tmp_path / "rows", schema, [{"x": one} for one in ids])
    assert rows_of(tmp_path / "frame") == rows_of(tmp_path / "rows") == expected
    assert rows_of(tmp_path / "dict") == [*expected, None]


class HuggingFaceDataset:
    """A stand-in for `datasets.Dataset`: a table in `data`, and indices that select its rows."""

    def __init__(self, table: pa.Table, indices: list[int] | None) -> None:
        self.data = SimpleNamespace(table=table)
        self.features = table.schema
        self._indices = None if indices is None else pa.table({"indices": pa.array(indices, pa.uint64())})

    def __len__(self) -> int:
        return len(self.data.table if self._indices is None else self._indices)

    def with_format(self, name: str) -> HuggingFaceDataset:
        assert name == "arrow"
        return self

    def iter(self, batch_size: int) -> Iterator[pa.Table]:
        table = self.data.table if self._indices is None else self.data.table.take(self._indices["indices"])
        return (table.slice(start, batch_size) for start in range(0, len(table), batch_size))


def test_hugging_face_dataset_is_written_in_index_order(tmp_path: Path) -> None:
    table = pa.table({"x": [10, 11, None, 13], "word": ["a", "b", "c", None]})
    petastore.write_dataset(tmp_path / "all", HuggingFaceDataset(table, None))
    petastore.write_dataset(tmp_path / "some", HuggingFaceDataset(table, [3, 0]))
    assert rows_of(tmp_path / "all") == [10, 11, None, 13]
    assert rows_of(tmp_path / "some") == [13, 10]
    with pytest.raises(InvalidArgumentError, match="column 'train' must be an array or a list, got a dataset"):
        petastore.write_dataset(tmp_path / "dict", {"train": HuggingFaceDataset(table, None)})
    schema = petastore.open_dataset(tmp_path / "some").schema
    assert (schema["x"].nullable, schema["word"].nullable) == (False, True)  # inferred from the selected rows


def test_large_columns_are_encoded_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_BYTES", 100)
    columns = columns_of({"x": np.zeros((50, 5), np.int64)})
    assert columns is not None
    batches = list(encode_columns(columns, Unischema("x", columns.fields())))
    assert {batch.num_rows for batch in batches} == {2}
    assert sum(batch.num_rows for batch in batches) == 50


@pytest.mark.parametrize(
    ("data", "error", "said"),
    [
        ({"a": [1, 2], "b": [1]}, InvalidArgumentError, "'a' has 2, 'b' has 1"),
        (
            {"a": 1},
            InvalidArgumentError,
            r"column 'a' must be an array or a list, got int\. Put a dict that is one row into a list of",
        ),
        (
            {"a": "text"},
            InvalidArgumentError,
            r"column 'a' must be an array or a list, got str\. Put a dict that is one row into a list of",
        ),
        ({1: [1]}, InvalidArgumentError, r"names of columns must be str, got 1\. Rename it"),
        (
            {"a": [object()]},
            SchemaError,
            r"column 'a' must have values of one type that Arrow supports, got object \(.*did not recognize .*\)\. ",
        ),
        (
            {"a": [1, "x"]},
            SchemaError,
            r"column 'a' must have values of one type that Arrow supports, got int, str \(.*'x'.*\. Convert them, or",
        ),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), InvalidArgumentError, "must differ, got 'a' twice"),
        (pa.table([[1], [2]], names=["a", "a"]), InvalidArgumentError, "must differ, got 'a' twice"),
        (
            [{"a": 1}],
            InvalidArgumentError,
            r"data must be an Arrow table, a pandas or Polars frame, a datasets\.Dataset, or a dict of",
        ),
    ],
)
def test_argument_without_columns_raises(data: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        infer_schema(data)


def test_invalid_column_value_raises_with_column_and_row() -> None:
    schema = Unischema("x", [UnischemaField("n", np.int8), UnischemaField("d", "datetime64[D]", nullable=True)])
    with pytest.raises(EncodeError, match="column 'n', row 2"):
        stored({"n": [1, 2, 1000]}, schema)
    with pytest.raises(EncodeError, match="column 'n', row 1: the value must not be null"):
        stored(pa.table({"n": pa.array([1, None], pa.int8())}), schema)
    with pytest.raises(EncodeError, match=r"column 'm': columns must be fields of schema .*, got 'm'"):
        stored({"n": [1], "m": [1]}, schema)
    with pytest.raises(EncodeError, match="column 'n': the column must be given, because the field is not nullable"):
        stored({"d": [dt.date(2026, 1, 1)]}, schema)
    assert stored({"n": [1, 2]}, schema).to_pydict() == {"n": [1, 2], "d": [None, None]}


def test_infer_schema_raises_for_unsupported_data(tmp_path: Path) -> None:
    refused: list[Any] = [[{"id": 1}], None, 5]
    for rows in refused:
        with pytest.raises(
            InvalidArgumentError,
            match=rf"data must be an Arrow table, .* of columns, got {type(rows).__name__}\. To write rows, pass their "
            r"schema first: write_dataset\(url, schema, rows\)",
        ):
            petastore.write_dataset(tmp_path / "x", rows)
    assert not (tmp_path / "x").exists()


def test_nested_columns_work_without_a_manifest(tmp_path: Path) -> None:
    nested = pa.struct(
        {"tags": pa.map_(pa.string(), pa.list_(pa.struct({"took": pa.duration("s")}))), "raw": pa.binary(2)}
    )
    table = pa.table({"x": pa.array([{"tags": [("a", [{"took": 4}, None])], "raw": b"ab"}, None], nested)})
    petastore.write_dataset(tmp_path / "x", table)
    shutil.rmtree(tmp_path / "x" / "_petastore")
    assert of_petastore(rows_of(tmp_path / "x")) == of_arrow(table["x"])
    petastore.write_dataset(tmp_path / "x", table, mode="append")
    assert of_petastore(rows_of(tmp_path / "x")) == of_arrow(table["x"]) * 2


@pytest.mark.parametrize(
    "column",
    [
        pytest.param([("k", 1)], id="map"),
        pytest.param(np.datetime64("9999-12-31"), id="day"),
        pytest.param(2**64 - 1, id="uint64"),
        pytest.param(np.timedelta64(5, "s"), id="timedelta"),
        pytest.param({"a": [1, 2], "b": {"c": "x"}}, id="struct"),
        pytest.param([{"a": 1}, {"a": None}], id="list of structs"),
        pytest.param(Decimal("1.5"), id="decimal"),
        pytest.param(uuid.UUID(int=7).bytes, id="uuid"),
    ],
)
def test_values_from_make_reader_can_be_written(column: Any, tmp_path: Path) -> None:
    values = [column, None, column]
    petastore.write_dataset(tmp_path / "first", {"x": values})
    with petastore.make_reader(tmp_path / "first", shuffle_row_groups=False) as reader:
        first = [row.x for row in reader]
    assert first == values
    petastore.write_dataset(tmp_path / "second", {"x": first})
    with petastore.make_reader(tmp_path / "second", shuffle_row_groups=False) as reader:
        assert [row.x for row in reader] == first
        assert reader.schema["x"].numpy_dtype == petastore.open_dataset(tmp_path / "first").schema["x"].numpy_dtype


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string_view(), ["a", None, "a text that is longer than a view holds"]),
        (pa.binary_view(), [b"a", None, b""]),
        (pa.list_(pa.string_view()), [["a", "b"], None, []]),
        (pa.struct([("text", pa.string_view())]), [{"text": "a"}, None, {"text": None}]),
    ],
    ids=str,
)
@pytest.mark.parametrize("is_stream", [False, True])
def test_arrow_string_views_are_written_as_text(
    kind: pa.DataType, values: list[Any], is_stream: bool, tmp_path: Path
) -> None:
    table = pa.table({"x": pa.array(values, kind)})
    petastore.write_dataset(tmp_path / "data", table.to_reader() if is_stream else table)
    with petastore.make_reader(tmp_path / "data", shuffle_row_groups=False) as reader:
        cells = [row.x for row in reader]
    assert [cell.tolist() if isinstance(cell, np.ndarray) else cell for cell in cells] == values


WIDER_THAN_THE_FIELD = {
    "uint8": np.array([1, 300], np.int16),
    "uint16": np.array([1, 70_000], np.int32),
    "uint32": np.array([1, 2**40], np.int64),
    "uint64": [Decimal(1), Decimal(-5)],
    "float16": np.array([1, 1e30], np.float32),
    "datetime64[s]": np.array([1_000_000, 1_500], "datetime64[us]"),
}


@pytest.mark.parametrize(("dtype", "values"), WIDER_THAN_THE_FIELD.items(), ids=WIDER_THAN_THE_FIELD)
def test_columns_of_the_stored_type_are_checked_against_the_dtype(tmp_path: Path, dtype: str, values: Any) -> None:
    schema = Unischema("narrow", [UnischemaField("x", np.dtype(dtype))])
    column = pa.array(values, storage_schema(schema).field("x").type)
    with pytest.raises(EncodeError, match=r"column 'x', row 1: "):
        encode_batch(pa.record_batch({"x": column}), schema)
    assert encode_batch(pa.record_batch({"x": column[:1]}), schema)["x"].equals(column[:1])
    for data in (pa.table({"x": column}), {"x": values}, [{"x": value} for value in column.to_pylist()]):
        with pytest.raises(EncodeError, match=r"column 'x', row 1: "):
            petastore.write_dataset(tmp_path / "data", schema, data)


@pytest.mark.parametrize("data", [pd.Series([1, 2]), pa.chunked_array([[1, 2]])], ids=["series", "chunked_array"])
def test_one_column_without_a_name_is_rejected(tmp_path: Path, data: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r'data must be a table .*Pass one column as \{"name": column\}'):
        petastore.write_dataset(tmp_path / "data", data)
    assert petastore.write_dataset(tmp_path / "data", {"x": data}).num_rows == 2


class ArrayLike:
    """Has the interface of an array of another library, such as a tensor of torch."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self.values, dtype)

    def __len__(self) -> int:
        return len(self.values)


def test_arrays_of_other_libraries_are_written_as_numpy_arrays(tmp_path: Path) -> None:
    columns = {"x": [1, 2], "pair": [[1.5, 2.5], [3.5, 4.5]]}
    petastore.write_dataset(tmp_path / "data", {name: ArrayLike(values) for name, values in columns.items()})
    with petastore.make_batch_reader(str(tmp_path / "data")) as reader:
        (batch,) = reader.iter_batches(2)
    assert {name: batch[name].tolist() for name in columns} == columns


def test_array_that_cannot_become_a_numpy_array_is_rejected(tmp_path: Path) -> None:
    class OnAGpu(ArrayLike):
        def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
            raise RuntimeError("copy the array to host memory first")

    with pytest.raises(InvalidArgumentError, match=r"column 'x' must be convertible to NumPy, got OnAGpu: copy the"):
        petastore.write_dataset(tmp_path / "data", {"x": OnAGpu([1, 2])})
