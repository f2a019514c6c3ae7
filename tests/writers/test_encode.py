"""Tests of encoding rows to columns through codecs; invalid values raise with field and row."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from petastore import open_dataset, write_dataset
from petastore.codecs import ArrowCodec, NdarrayCodec, ScalarCodec
from petastore.errors import EncodeError
from petastore.schema import Unischema, UnischemaField
from petastore.schema.arrow import storage_schema
from petastore.writers import encode
from petastore.writers.encode import encode_rows, in_chunks

SCHEMA = Unischema(
    "user",
    [
        UnischemaField("id", "int64"),
        UnischemaField("full name", "str", nullable=True),
        UnischemaField("face", "uint8", (None, 2), NdarrayCodec()),
        UnischemaField("xy", "float32", (2,)),
    ],
)


def row(number: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "face": np.full((number, 2), number, np.uint8), "xy": np.ones(2, np.float32), **more}


def test_encode_rows_stores_the_cells_that_each_codec_encodes() -> None:
    batch = encode_rows([row(0), row(1, **{"full name": "Ada"})], SCHEMA)
    assert batch.schema == storage_schema(SCHEMA)
    assert batch.column("id").to_pylist() == [0, 1]
    assert batch.column("full name").to_pylist() == [None, "Ada"]
    assert batch.column("xy").to_pylist() == [[1.0, 1.0], [1.0, 1.0]]
    face = SCHEMA.fields["face"]
    assert batch.column("face").to_pylist() == [NdarrayCodec().encode(face, row(number)["face"]) for number in (0, 1)]


def test_encode_ignores_the_order_of_keys() -> None:
    forwards = row(1, **{"full name": "x"})
    backwards = dict(reversed(forwards.items()))
    assert encode_rows([forwards], SCHEMA) == encode_rows([backwards], SCHEMA)


def test_encode_without_rows_returns_an_empty_batch() -> None:
    assert encode_rows([], SCHEMA).num_rows == 0


@pytest.mark.parametrize(
    ("wrong", "column", "why"),
    [
        ({"id": 1}, "face", "column 'face', row 102: the row must have this field, because the field is not nullable"),
        (row(1, id=None), "id", "the value must not be None, because the field is not nullable"),
        (
            row(1, age=3),
            "age",
            r"row 102: a row must have only fields of schema 'user' \('id', 'full name', 'face', 'xy'\), got 'age'",
        ),
        (row(1, id="seven"), "id", "int64"),
        (row(1, face=np.zeros((3, 3), np.uint8)), "face", r"\(3, 3\)"),
        (row(1, face=np.zeros((3, 2), np.int8)), "face", "int8"),
        (row(1, xy=np.zeros(3, np.float32)), "xy", r"\(2,\)"),
    ],
)
def test_encode_error_names_field_and_row(wrong: dict[str, Any], column: str, why: str) -> None:
    with pytest.raises(EncodeError, match=why) as refused:
        encode_rows([row(0), row(1), wrong], SCHEMA, first_row=100)
    assert (refused.value.column, refused.value.row) == (column, 102)
    assert str(refused.value).startswith(f"column '{column}', row 102: ")


@pytest.mark.parametrize("wrong", [7, "text", [1, 2], None])
def test_row_that_is_not_a_dict_raises(wrong: Any) -> None:
    with pytest.raises(EncodeError, match="row 1: a row must be a dict or a named tuple, got ") as refused:
        encode_rows([row(0), wrong], SCHEMA)
    assert refused.value.row == 1


class Broken(NdarrayCodec):
    """A codec that returns another Arrow type than it declares."""

    codec_id = "broken"

    def encode_column(self, values: Any, field: UnischemaField) -> Any:  # noqa: ARG002
        return pa.nulls(len(values), pa.binary())


def test_encode_rows_raises_for_a_codec_that_returns_another_type() -> None:
    schema = Unischema("broken", [UnischemaField("x", "int8", (1,), Broken(), nullable=True)])
    with pytest.raises(
        EncodeError, match=r"the codec Broken\(\) must return binary, got .*\. This is a defect of the codec"
    ):
        encode_rows([{"x": np.zeros(1, np.int8)}], schema)


def test_encoding_chunks_contain_all_rows_in_order() -> None:
    rows = [row(number % 3, **{"full name": str(number)}) for number in range(10_000)]
    chunks = list(in_chunks(iter(rows), SCHEMA))
    assert [given for chunk in chunks for given in chunk] == rows
    assert {len(chunk) for chunk in chunks[:-1]} == {encode.CHUNK_ROWS}


def test_encoding_chunks_have_few_rows_when_rows_are_large() -> None:
    schema = Unischema("image", [UnischemaField("image", "uint8", (None,), NdarrayCodec())])
    image = np.zeros(encode.CHUNK_BYTES // 4 + 1, np.uint8)
    assert [len(chunk) for chunk in in_chunks([{"image": image}] * 10, schema)] == [4, 4, 2]
    fixed = Unischema("image", [UnischemaField("image", "uint8", image.shape)])
    assert [len(chunk) for chunk in in_chunks([{}] * 5, fixed)] == [4, 1]
    text = Unischema("text", [UnischemaField("text", "str")])
    assert [len(chunk) for chunk in in_chunks([{"text": "x" * encode.CHUNK_BYTES}] * 3, text)] == [1, 1, 1]


def test_encode_accepts_named_tuples() -> None:
    point = collections.namedtuple("point", "x y")  # noqa: PYI024 - what users of Petastorm have
    schema = Unischema("point", [UnischemaField("x", "int32"), UnischemaField("y", "int32")])
    (chunk,) = in_chunks([point(1, 2), schema.make_namedtuple(x=3, y=4)], schema)
    assert encode_rows(chunk, schema).to_pylist() == [{"x": 1, "y": 2}, {"x": 3, "y": 4}]


def test_chunking_passes_invalid_rows_on_to_the_encoder() -> None:
    (chunk,) = in_chunks([7], SCHEMA)
    assert repr(chunk) == "[7]"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (UnischemaField("x", "int32", nullable=True), 7),
        (UnischemaField("x", "int32", (), ScalarCodec("int"), nullable=True), 7),
        (UnischemaField("x", "str", nullable=True), "a"),
        (UnischemaField("x", "float32", (2,), nullable=True), np.ones(2, np.float32)),
        (UnischemaField("x", "float32", (2,), NdarrayCodec(), nullable=True), np.ones(2, np.float32)),
        (UnischemaField("x", object, (), ArrowCodec(pa.struct({"a": pa.int8()})), nullable=True), {"a": 1}),
    ],
)
def test_masked_values_are_written_as_nulls(field: UnischemaField, value: Any, tmp_path: Path) -> None:
    schema = Unischema("s", [field])
    values = [np.ma.masked, value, np.ma.masked]
    write_dataset(tmp_path / "rows", schema, [{"x": value} for value in values])
    write_dataset(tmp_path / "columns", schema, {"x": values})
    write_dataset(tmp_path / "expected", schema, [{"x": None}, {"x": value}, {}])
    expected = open_dataset(tmp_path / "expected").to_arrow()
    assert expected["x"].null_count == 2
    assert open_dataset(tmp_path / "rows").to_arrow() == open_dataset(tmp_path / "columns").to_arrow() == expected


def test_masked_value_of_a_required_field_raises(tmp_path: Path) -> None:
    with pytest.raises(EncodeError, match="must not be None, because the field is not nullable") as failure:
        write_dataset(tmp_path / "x", Unischema("s", [UnischemaField("x", "int32")]), [{"x": 1}, {"x": np.ma.masked}])
    assert (failure.value.column, failure.value.row) == ("x", 1)
