"""Tests of Arrow types as JSON: round trip, and errors for invalid or deeply nested JSON."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.codecs.arrow.arrow_types import parse_type, plain_type, stored_layout, type_as_json
from petastore.errors import SchemaError

LEAVES = [
    *(pa.null(), pa.bool_(), pa.uint8(), pa.int64(), pa.float16(), pa.float64(), pa.string(), pa.large_binary()),
    *(pa.binary(3), pa.decimal128(10, 2), pa.decimal256(50, 0), pa.date32(), pa.date64(), pa.time32("s")),
    *(pa.time64("ns"), pa.timestamp("s"), pa.timestamp("us", "Europe/Berlin"), pa.duration("s"), pa.duration("ns")),
    *(pa.dictionary(pa.int8(), pa.string()), pa.list_(pa.int8(), 2), pa.string_view()),
]

NESTED = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: (
        inner.map(pa.list_)
        | inner.map(lambda kind: pa.map_(pa.string(), kind))
        | st.dictionaries(st.text(max_size=2), inner, min_size=1, max_size=3).map(pa.struct)
    ),
    max_leaves=6,
)


@given(NESTED)
def test_arrow_type_round_trips_through_json(kind: pa.DataType) -> None:
    plain = plain_type(kind, name="x")
    assert parse_type(type_as_json(plain)) == plain
    assert plain_type(plain, name="x") == plain
    assert pa.array([None], plain).view(stored_layout(plain)).null_count == 1


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers() | st.text(max_size=8) | st.sampled_from(["int64", "decimal128(99, 1)", "list"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["list", "map", "struct"]), inner),
    max_leaves=5,
)


@given(JSON)
def test_arrow_type_from_invalid_json_raises(document: Any) -> None:
    try:
        kind = parse_type(document)
    except SchemaError:
        return
    assert type_as_json(kind) == document


def test_arrow_type_from_deeply_nested_json_raises() -> None:
    document: Any = "int8"
    for _ in range(10_000):
        document = {"list": document}
    with pytest.raises(SchemaError, match=r"arrow_type must be a pyarrow\.DataType or its JSON, got dict"):
        parse_type(document)
