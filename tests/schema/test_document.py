"""Tests of the schema document (JSON): round trip; damaged, newer and too large documents raise."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.codecs import CompressedImageCodec, CompressedNdarrayCodec, NdarrayCodec, ScalarCodec
from petastore.codecs.registry import codec_from_json
from petastore.errors import MetadataError
from petastore.schema import Unischema, UnischemaField
from petastore.schema.document import DOCUMENT_VERSION, dump_document, parse_document

DTYPES = ["bool", "uint8", "int64", "float16", "complex64", "str", "bytes", "datetime64[ns]", "timedelta64[s]", Decimal]
SHAPES = st.lists(st.none() | st.integers(0, 9), max_size=4).map(tuple)
ARRAY_CODECS = st.sampled_from([None, NdarrayCodec(), CompressedNdarrayCodec()])


def parsed(document: Any) -> Unischema:
    text = document if isinstance(document, (str, bytes)) else json.dumps(document)
    return Unischema(*parse_document(text, codec_from_json=codec_from_json, source="here"))


@st.composite
def some_field(draw: st.DrawFn) -> UnischemaField:
    name = draw(st.text(min_size=1, max_size=9))
    kind = draw(st.integers(0, 2))
    nullable = draw(st.booleans())
    if kind == 0:
        return UnischemaField(name, "int32", (), ScalarCodec(draw(st.sampled_from(["int", "bigint"]))), nullable)
    if kind == 1:
        return UnischemaField(
            name, "uint8", (None, 4, 3), CompressedImageCodec("jpeg", draw(st.integers(1, 100))), nullable
        )
    dtype = draw(st.sampled_from(DTYPES))
    return UnischemaField(name, dtype, draw(SHAPES), None if dtype is Decimal else draw(ARRAY_CODECS), nullable)


@given(name=st.text(max_size=9), fields=st.lists(some_field(), unique_by=lambda field: field.name, max_size=5))
def test_schema_document_round_trips(name: str, fields: list[UnischemaField]) -> None:
    schema = Unischema(name, fields)
    document = dump_document(schema.name, schema)
    assert parsed(document) == schema
    assert parsed(document.encode(errors="surrogatepass") if document.isascii() else document) == schema
    assert dump_document(name, parsed(document)) == document


def test_schema_document_text_is_stable() -> None:
    schema = Unischema(
        "user",
        [
            UnischemaField("id", "int64"),
            UnischemaField("face", "uint8", (64, None, 3), CompressedImageCodec("png")),
            UnischemaField("preis €", Decimal, (), ScalarCodec("decimal(10,4)"), nullable=True),
            UnischemaField("pose", "float32", (4, 4), NdarrayCodec()),
            UnischemaField("mask", "bool", (None,), CompressedNdarrayCodec()),
        ],
    )
    assert dump_document(schema.name, schema) == (
        '{"format":"petastore.unischema","version":1,"name":"user","fields":['
        '{"name":"id","dtype":"int64","shape":[],"nullable":false,"codec":null},'
        '{"name":"face","dtype":"uint8","shape":[64,null,3],"nullable":false,'
        '"codec":{"id":"compressed_image","image_codec":"png","quality":80}},'
        '{"name":"preis €","dtype":"decimal","shape":[],"nullable":true,'
        '"codec":{"id":"scalar","spark_type":"decimal(10,4)"}},'
        '{"name":"pose","dtype":"float32","shape":[4,4],"nullable":false,"codec":{"id":"ndarray"}},'
        '{"name":"mask","dtype":"bool","shape":[null],"nullable":false,"codec":{"id":"compressed_ndarray"}}]}'
    )


GOOD: dict[str, Any] = {
    "format": "petastore.unischema",
    "version": 1,
    "name": "s",
    "fields": [{"name": "id", "dtype": "int64", "shape": [], "nullable": False, "codec": None}],
}


def test_schema_document_of_newer_version_raises_with_required_release() -> None:
    newer = {**GOOD, "version": DOCUMENT_VERSION + 1, "needs": "petastore 3.2"}
    with pytest.raises(MetadataError, match=r"here.*version 2.*up to 1.*Install petastore 3\.2"):
        parsed(newer)


@pytest.mark.parametrize(
    "change",
    [
        {"format": "other"}, {"version": 0}, {"version": True}, {"version": "1"}, {"version": None}, {"name": 5},
        {"fields": None}, {"fields": {}}, {"fields": ["id"]}, {"fields": [GOOD["fields"][0]] * 2},
    ],
    ids=repr,
)  # fmt: skip
def test_damaged_schema_document_raises(change: dict[str, Any]) -> None:
    with pytest.raises(MetadataError, match="here"):
        parsed({**GOOD, **change})


@pytest.mark.parametrize(
    "change",
    [
        {"name": None}, {"dtype": "no"}, {"dtype": None}, {"dtype": []}, {"dtype": "i4,i4"},
        {"shape": "23"}, {"shape": [2.0]}, {"shape": [-1]}, {"shape": None}, {"shape": {"2": 3}},
        {"nullable": "no"}, {"nullable": None},
        {"codec": 5}, {"codec": {}}, {"codec": {"id": "unknown"}}, {"codec": {"id": "scalar"}}, {"codec": "ndarray"},
        {"codec": {"id": "scalar", "spark_type": "string"}}, {"codec": {"id": "compressed_image"}}, {"codec": []},
    ],
    ids=repr,
)  # fmt: skip
def test_schema_document_with_a_damaged_field_raises(change: dict[str, Any]) -> None:
    with pytest.raises(MetadataError, match="here"):
        parsed({**GOOD, "fields": [{**GOOD["fields"][0], **change}]})


def test_schema_document_with_an_incomplete_field_raises() -> None:
    for key in GOOD["fields"][0]:
        lacking = {name: value for name, value in GOOD["fields"][0].items() if name != key}
        with pytest.raises(MetadataError, match=key):
            parsed({**GOOD, "fields": [lacking]})


@pytest.mark.parametrize("text", ["", "{", "[]", "null", b"\xff\xfe\xfa", "[" * 100_000, "5"])
def test_invalid_schema_document_raises(text: Any) -> None:
    with pytest.raises(MetadataError, match="here"):
        parsed(text)


def test_too_large_schema_document_raises() -> None:
    with pytest.raises(MetadataError, match="must have at most 67,108,864 bytes, got 67,108,865"):
        parsed(" " * (64 * 1024 * 1024 + 1))
    with pytest.raises(MetadataError, match="at most 100,000"):
        parsed({**GOOD, "fields": [5] * 100_001})


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=9)
    | st.sampled_from(["int64", "ndarray", "str"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@given(
    fields=st.lists(
        st.fixed_dictionaries({"name": JSON, "dtype": JSON, "shape": JSON, "nullable": JSON, "codec": JSON}) | JSON,
        max_size=3,
    )
)
def test_schema_document_with_random_json_fields_parses_or_raises(fields: list[Any]) -> None:
    try:
        schema = parsed({**GOOD, "fields": fields})
    except MetadataError:
        return
    assert len(schema) == len(fields)
