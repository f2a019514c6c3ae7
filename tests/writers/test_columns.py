"""Columns are stored as their rows would be, under a schema that is inferred or given."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import petastore
from petastore.codecs import CompressedImageCodec, NdarrayCodec
from petastore.errors import EncodeError, RequestError, SchemaError
from petastore.schema import Unischema, UnischemaField
from petastore.writers import columns as module
from petastore.writers.columns import columns_of, encode_columns, infer_schema
from petastore.writers.encode import encode_chunks

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


def test_a_dict_of_columns_tells_its_schema() -> None:
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


def test_columns_are_stored_as_their_rows_are() -> None:
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
def test_arrow_columns_are_stored_as_their_rows_are(rows: list[tuple[Any, ...]]) -> None:
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
    """What Polars and others have."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def test_frames_of_pandas_come_without_their_index() -> None:
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
        ("score", False),  # NaN is a number
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


def test_whatever_has_an_arrow_stream_is_written(tmp_path: Path) -> None:
    table = pa.table({"id": range(10), "word": list("abcdefghij")})
    petastore.write_dataset(tmp_path / "x", Stream(table), rows_per_row_group=4)
    with petastore.make_batch_reader(str(tmp_path / "x"), shuffle_row_groups=False) as reader:
        assert np.concatenate([batch.id for batch in reader]).tolist() == list(range(10))
        assert reader.schema["word"].nullable  # a stream says so, and nobody has looked at its rows


def test_a_schema_of_ones_own_encodes_the_columns(tmp_path: Path) -> None:
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
        ({"a": [1, 2], "b": [1]}, RequestError, "'a' has 2, 'b' has 1"),
        ({"a": 1}, RequestError, "column 'a' is a int; .* list of rows"),
        ({"a": "text"}, RequestError, "column 'a' is a str"),
        ({1: [1]}, RequestError, "names of columns are texts, but one is 1"),
        ({"a": [object()]}, SchemaError, r"column 'a' .*\(object\)"),
        ({"a": [1, "x"]}, SchemaError, r"column 'a' .*\(int, str\)"),
        ({"a": [None, None]}, SchemaError, "column 'a' has no values"),
        (pa.table({"a": pa.nulls(2)}), SchemaError, "column 'a' has no values"),
        ([{"a": 1}], RequestError, "inferred from .*, but a list was given"),
    ],
)
def test_what_is_no_columns_is_refused(data: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        infer_schema(data)


def test_a_value_that_does_not_fit_is_named_by_column_and_row() -> None:
    schema = Unischema("x", [UnischemaField("n", np.int8), UnischemaField("d", "datetime64[D]", nullable=True)])
    with pytest.raises(EncodeError, match="column 'n', row 2"):
        stored({"n": [1, 2, 1000]}, schema)
    with pytest.raises(EncodeError, match="column 'n', row 1: the value is None"):
        stored(pa.table({"n": pa.array([1, None], pa.int8())}), schema)
    with pytest.raises(EncodeError, match=r"column 'm': .*no such field"):
        stored({"n": [1], "m": [1]}, schema)
    with pytest.raises(EncodeError, match="column 'n': there is no such column"):
        stored({"d": [dt.date(2026, 1, 1)]}, schema)
    assert stored({"n": [1, 2]}, schema).to_pydict() == {"n": [1, 2], "d": [None, None]}


def test_data_without_a_schema_that_can_be_inferred_is_refused(tmp_path: Path) -> None:
    refused: list[Any] = [[{"id": 1}], None, 5]
    for rows in refused:
        with pytest.raises(RequestError, match="Without one it writes columns"):
            petastore.write_dataset(tmp_path / "x", rows)
    assert not (tmp_path / "x").exists()
