"""Tests of encoding Python objects: equal to `pyarrow.array`, but values that do not fit raise an error."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from petastore.codecs.arrow.arrow_objects import encode_objects
from petastore.errors import EncodeError

LIST = pa.list_(pa.field("element", pa.int8()))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}], pa.struct({"a": pa.int8(), "b": pa.string()})),
        ([[1, None], None, []], LIST),
        ([[[1], None, [2, 3]], []], pa.list_(pa.field("element", LIST))),
        ([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
        ([{"m": [("k", {"x": 1.5})]}], pa.struct({"m": pa.map_(pa.string(), pa.struct({"x": pa.float32()}))})),
        ([{"d": Decimal("1.25")}], pa.struct({"d": pa.decimal128(5, 2)})),
        ([{"raw": b"abc"}], pa.struct({"raw": pa.binary(3)})),
        ([None, None], pa.null()),
    ],
)
def test_python_objects_are_encoded_like_pyarrow_array(values: list[Any], kind: pa.DataType) -> None:
    assert encode_objects(values, kind, "x").to_pylist() == pa.array(values, kind).to_pylist()


def test_nested_numpy_times_are_encoded_exactly() -> None:
    kind = pa.struct(
        {"at": pa.timestamp("ns"), "day": pa.date32(), "clock": pa.time32("ms"), "took": pa.duration("us")}
    )
    value = {
        "at": np.datetime64("2026-01-01T00:00:00.000000001"),
        "day": np.datetime64("2026-01-02"),
        "clock": np.timedelta64(5, "s"),
        "took": np.timedelta64(-3, "us"),
    }
    found = encode_objects([value], kind, "x")
    assert found.type.field("took").type == pa.int64()
    instant, day, clock, took = (found.field(number) for number in range(4))
    assert instant.cast(pa.int64()).to_pylist() == [1767225600000000001]
    assert str(day[0]) == "2026-01-02"
    assert clock.cast(pa.int32()).to_pylist() == [5000]
    assert took.to_pylist() == [-3]


@pytest.mark.parametrize(
    ("value", "kind", "said"),
    [
        ({"b": 1}, pa.struct({"a": pa.int8()}), "column 'x': a struct must have only the members 'a', got 'b'"),
        ([1], pa.struct({"a": pa.int8()}), r"column 'x': a struct must be a dict, got list \[1\]"),
        ({"a": 300}, pa.struct({"a": pa.int8()}), "column 'x.a'"),
        ("text", LIST, "the value must be a list"),
        ([("a",)], pa.map_(pa.string(), pa.int8()), "a dict or a list of pairs"),
        ({None: 1}, pa.map_(pa.string(), pa.int8()), "keys of a map must not be None"),
        ([b"four"], pa.list_(pa.binary(3)), "column 'x': each value must have 3 bytes"),
        ([1], pa.list_(pa.null()), "column 'x': a value of the type null must be None, got int"),
    ],
)
def test_nested_value_of_another_type_raises_when_encoded(value: Any, kind: pa.DataType, said: str) -> None:
    with pytest.raises(EncodeError, match=said):
        encode_objects([value], kind, "x")
