"""Tests of the schema pickle that petastore writes for Petastorm: it loads with petastore and with `pickle`."""

from __future__ import annotations

import io
import pickle
import pickletools
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore import Unischema, UnischemaField
from petastore.codecs import CompressedImageCodec, CompressedNdarrayCodec, NdarrayCodec, ScalarCodec, VectorCodec
from petastore.codecs.images.image import ReversedImageCodec
from petastore.codecs.registry import codec_from_json
from petastore.errors import SchemaError
from petastore.interop.petastorm_pickle import petastorm_pickle
from petastore.schema.document import parse_document
from petastore.storage.metadata.petastorm_schema import NAMES, petastorm_document

NUMBERS = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32",
           "float64")  # fmt: skip
SPARK_TYPES = {
    "boolean": "bool", "tinyint": "int8", "smallint": "uint8", "int": "int32", "bigint": "uint32", "float": "float32",
    "double": "float64", "string": "str", "binary": "bytes", "date": "datetime64[us]", "timestamp": "datetime64[us]",
    "timestamp_ntz": "datetime64[us]", "varchar(12)": "str", "char(3)": "str", "decimal(12,4)": "decimal",
    "decimal(20,0)": "uint64",
}  # fmt: skip


def read_back(schema: Unischema) -> Unischema:
    document = petastorm_document(petastorm_pickle(schema), pa.schema([]), source="a test")
    return Unischema(*parse_document(document, codec_from_json=codec_from_json, source="a test"))


MANY = Unischema(
    "Größen",
    [
        *(UnischemaField(f"plain_{dtype}", dtype) for dtype in NUMBERS),
        *(UnischemaField(f"list_{dtype}", dtype, (None,), None, True) for dtype in NUMBERS),
        *(
            UnischemaField(f"s{number}", dtype, (), ScalarCodec(spark_type))
            for number, (spark_type, dtype) in enumerate(SPARK_TYPES.items())
        ),
        *(UnischemaField(f"array_{dtype}", dtype, (3, None), NdarrayCodec(), True) for dtype in NUMBERS),
        UnischemaField("complex", "complex64", (2**40, 0), CompressedNdarrayCodec()),
        UnischemaField("words", "str", (None,), NdarrayCodec()),
        UnischemaField("png", "uint16", (None, None, 3), CompressedImageCodec("png")),
        UnischemaField("jpeg", "uint8", (24, 32), CompressedImageCodec("jpeg", 93), True),
        UnischemaField("fields", "int64"),
        UnischemaField("text", "str"),
        UnischemaField("größe", "float32"),
        UnischemaField("when", "datetime64[us]"),
    ],
)


def test_petastorm_pickle_of_a_schema_round_trips() -> None:
    assert read_back(MANY) == MANY
    assert list(read_back(MANY).fields) == list(MANY.fields)


def test_petastorm_pickle_drops_time_units() -> None:
    assert read_back(Unischema("one", [UnischemaField("x", "datetime64[D]")])).x.dtype_name == "datetime64[us]"


def fields() -> st.SearchStrategy[UnischemaField]:
    shapes = st.lists(st.none() | st.integers(0, 2**40), max_size=4).map(tuple)
    arrays = st.builds(
        lambda dtype, shape, codec, nullable: ("x", dtype, shape, codec(), nullable),
        st.sampled_from(NUMBERS), shapes, st.sampled_from([NdarrayCodec, CompressedNdarrayCodec]), st.booleans(),
    )  # fmt: skip
    plain = st.builds(lambda dtype, nullable: ("x", dtype, (), None, nullable), st.sampled_from(NUMBERS), st.booleans())
    return (arrays | plain).map(lambda parts: UnischemaField(*parts))


@given(st.text("abcdefgäöü", min_size=1), st.lists(fields(), max_size=8))
def test_petastorm_pickle_of_any_schema_round_trips(name: str, made: list[UnischemaField]) -> None:
    named = [
        UnischemaField(f"f{number}", field.numpy_dtype, field.shape, field.codec, field.nullable)
        for number, field in enumerate(made)
    ]
    schema = Unischema(f"n{name}", named)
    assert read_back(schema) == schema


class _Made:
    """Records the calls of the pickle, in place of Petastorm's classes."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items = {**getattr(self, "items", {}), key: value}


class _Unpickler(pickle.Unpickler):
    """Python's own unpickler, which validates other things than petastore's parser."""

    def find_class(self, module: str, name: str) -> Any:
        assert (module, name) in NAMES
        namespace = {"__new__": lambda cls, *arguments: _new(cls, arguments), "spelled": f"{module}.{name}"}
        return type(name, (_Made,), namespace)


def _new(cls: Any, arguments: tuple[Any, ...]) -> Any:
    made = object.__new__(cls)
    made.arguments = arguments
    return made


def test_petastorm_pickle_loads_with_python_pickle() -> None:
    pickled = petastorm_pickle(MANY)
    made = _Unpickler(io.BytesIO(pickled)).load()
    assert made.spelled == "petastorm.unischema.Unischema"
    assert made.state["_name"] == "Größen"
    items = made.state["_fields"].items
    assert list(items) == list(MANY.fields)
    assert made.state["text"] is items["text"]
    assert "fields" not in made.state  # as an attribute it would hide Unischema.fields
    name, dtype, shape, codec, nullable = items["png"].arguments
    assert (name, dtype.spelled, shape, nullable) == ("png", "numpy.uint16", (None, None, 3), False)
    assert (codec.spelled, codec.state) == (
        "petastorm.codecs.CompressedImageCodec",
        {"_image_codec": ".png", "_quality": 80},
    )


def test_petastorm_pickle_is_valid_protocol_2() -> None:
    codes = [code for code, _, _ in pickletools.genops(petastorm_pickle(MANY))]
    assert max(code.proto for code in codes) == 2
    pickletools.dis(petastorm_pickle(MANY), out=io.StringIO())


REFUSED: dict[str, tuple[UnischemaField, str]] = {
    "a name with a dash": (UnischemaField("a-b", "int64"), "named tuples"),
    "a keyword": (UnischemaField("class", "int64"), "named tuples"),
    "a name that begins with _": (UnischemaField("_id", "int64"), "named tuples"),
    "vectors": (UnischemaField("x", "float64", (3,), VectorCodec()), "VectorCodec"),
    "reversed images": (UnischemaField("x", "uint8", (4, 4, 3), ReversedImageCodec()), "ReversedImageCodec"),
    "lists of text": (UnischemaField("x", "str", (None,)), "lists of numbers"),
    "lists of decimals": (UnischemaField("x", Decimal, (None,)), "lists of numbers"),
    "lists of time stamps": (UnischemaField("x", "datetime64[us]", (None,)), "lists of numbers"),
    "lists of lists": (UnischemaField("x", "int32", (None, None)), "lists of numbers"),
    "durations": (UnischemaField("x", "timedelta64[us]"), "only in arrays"),
    "complex scalars": (UnischemaField("x", "complex64"), "only in arrays"),
    "nanoseconds": (UnischemaField("x", "datetime64[ns]"), "microseconds"),
    "time stamps with nulls": (UnischemaField("x", "datetime64[us]", nullable=True), "first null"),
    "Python objects": (UnischemaField("x", np.object_), "dtype object"),
}


@pytest.mark.parametrize(("field", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_petastorm_pickle_raises_for_unsupported_fields(field: UnischemaField, reason: str) -> None:
    with pytest.raises(SchemaError, match=f"Petastorm cannot read the field '{field.name}'.*{reason}"):
        petastorm_pickle(Unischema("one", [UnischemaField("id", "int64"), field]))


def test_petastorm_pickle_raises_for_custom_codecs() -> None:
    class TheirCodec(NdarrayCodec):
        codec_id = "test_export_theirs"

    with pytest.raises(SchemaError, match=r"Petastorm lacks the codec .*Codec"):
        petastorm_pickle(Unischema("one", [UnischemaField("x", "int64", (3,), TheirCodec())]))


def test_petastorm_pickle_raises_for_schema_names_that_are_not_identifiers() -> None:
    with pytest.raises(SchemaError, match="schema name must be a Python identifier for Petastorm, got 'my schema'"):
        petastorm_pickle(Unischema("my schema", []))
