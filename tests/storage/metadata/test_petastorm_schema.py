"""Tests of reading Petastorm's pickled schemas of all releases; misplaced names and damage raise."""

from __future__ import annotations

import collections
import itertools
import json
import pickle
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from petastore.codecs import CompressedImageCodec, CompressedNdarrayCodec, NdarrayCodec, ScalarCodec
from petastore.codecs.images.image import ReversedImageCodec
from petastore.codecs.registry import codec_from_json
from petastore.errors import MetadataError
from petastore.schema import Unischema, UnischemaField
from petastore.schema.document import dump_document, parse_document
from petastore.storage.metadata.petastorm_schema import NAMES, PETASTORM_SCHEMA_KEY, petastorm_document
from tests.calls import counted_calls
from tests.tier import examples, sized

PACKAGES = ["petastorm", "dataset_toolkit", "av.ml.dataset_toolkit", "av.experimental.deepdrive.dataset_toolkit"]
STORED = pa.schema({"price": pa.decimal128(12, 3), "word": pa.string(), "blob": pa.binary()})
SPARK_TYPES = {
    "ByteType": "tinyint", "ShortType": "smallint", "IntegerType": "int", "LongType": "bigint", "FloatType": "float",
    "DoubleType": "double", "BooleanType": "boolean", "StringType": "string", "BinaryType": "binary",
    "DateType": "date", "TimestampType": "timestamp", "TimestampNTZType": "timestamp_ntz",
}  # fmt: skip


def document_of(pickled: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(petastorm_document(pickled, STORED, source="a test"))
    return found


def schema_of(pickled: bytes) -> Unischema:
    document = petastorm_document(pickled, STORED, source="a test")
    return Unischema(*parse_document(document, codec_from_json=codec_from_json, source="a test"))


class Field(NamedTuple):
    """A stand-in for `petastorm.unischema.UnischemaField`."""

    name: Any
    numpy_dtype: Any
    shape: Any
    codec: Any = None
    nullable: Any = False


class Petastorm:
    """Stand-ins under Petastorm's names, so that pickle itself writes a release's format."""

    def __init__(self, package: str, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        # All parent packages are present, so that pickle imports nothing.
        for depth in range(1, package.count(".") + 2):
            patch.setitem(sys.modules, ".".join(package.split(".")[:depth]), ModuleType("package"))
        self.unischema = self.module(f"{package}.unischema")
        self.codecs = self.module(f"{package}.codecs")
        self.spark = self.module("pyspark.sql.types")
        self.serializers = self.module("pyspark.serializers")
        for parent in ("pyspark", "pyspark.sql"):
            patch.setitem(sys.modules, parent, ModuleType(parent))
        self.unischema.UnischemaField = type("UnischemaField", (Field,), {"__module__": self.unischema.__name__})
        self.unischema.UnischemaField.__qualname__ = "UnischemaField"
        self.Field = self.unischema.UnischemaField

    def module(self, name: str) -> Any:
        module = ModuleType(name)
        self._patch.setitem(sys.modules, name, module)
        return module

    def made(self, module: Any, name: str, **state: Any) -> Any:
        if not hasattr(module, name):
            setattr(module, name, type(name, (), {"__module__": module.__name__}))
        made = getattr(module, name)()
        made.__dict__.update(state)
        return made

    def codec(self, name: str, **state: Any) -> Any:
        return self.made(self.codecs, name, **state)

    def scalar(self, spark_type: str, **state: Any) -> Any:
        return self.codec("ScalarCodec", _spark_type=self.made(self.spark, spark_type, **state))

    def schema(self, *fields: Any, name: str = "user") -> Any:
        by_name = collections.OrderedDict((field[0], field) for field in fields)
        made = self.made(self.unischema, "Unischema", _name=name, _fields=by_name)
        made.__dict__.update(by_name)
        return made

    def hijack(self) -> None:
        """Let fields pickle in the form of PySpark's patched named tuples."""

        def _restore() -> None:
            pytest.fail("this is never called")

        _restore.__module__, _restore.__qualname__ = "pyspark.serializers", "_restore"
        self.serializers._restore = _restore
        self.Field.__reduce__ = lambda field: (_restore, ("UnischemaField", Field._fields, tuple(field)))


@pytest.fixture
def petastorm(monkeypatch: pytest.MonkeyPatch) -> Petastorm:
    return Petastorm("petastorm", monkeypatch)


def many_fields(petastorm: Petastorm) -> list[Any]:
    field, image = petastorm.Field, "CompressedImageCodec"
    return [
        field("id", np.int64, (), petastorm.scalar("LongType"), False),
        field("name", np.str_, (), petastorm.scalar("StringType", collation="UTF8_BINARY"), True),
        field("tag", np.bytes_, (), petastorm.scalar("BinaryType"), False),
        field("amount", Decimal, (), petastorm.scalar("DecimalType", precision=10, scale=4, hasPrecisionInfo=True)),
        field("code", np.str_, (), petastorm.scalar("VarcharType", length=12)),
        field("price", Decimal, ()),
        field("word", np.bytes_, ()),
        field("plain", np.float32, (), None, True),
        field("numbers", np.int32, (None,), petastorm.codec("ScalarCodec", _spark_type=petastorm.made(
            petastorm.spark, "ArrayType", elementType=petastorm.made(petastorm.spark, "IntegerType"), containsNull=True
        ))),
        field("pose", np.float64, (4, None), petastorm.codec("NdarrayCodec"), True),
        field("mask", np.bool_, (8, 8), petastorm.codec("CompressedNdarrayCodec")),
        field("photo", np.uint8, (None, None, 3), petastorm.codec(image, _image_codec=".jpeg", _quality=90)),
        field("old", np.uint8, (4, 5, 3), petastorm.codec(image, _format="png", _quality=80)),
        field("early", np.uint8, (4, 5, 3), petastorm.codec(image, _format=".png", _quality=80)),
        field("when", np.datetime64, (), petastorm.scalar("TimestampType")),
        field("größe", np.dtype("uint16"), (), petastorm.scalar("IntegerType")),
        field("day", np.dtype("datetime64[D]"), (), petastorm.scalar("DateType")),
        field("text", str, (), petastorm.scalar("StringType")),
    ]  # fmt: skip


MANY = Unischema(
    "user",
    [
        UnischemaField("id", "int64", (), ScalarCodec("bigint")),
        UnischemaField("name", str, (), ScalarCodec("string"), nullable=True),
        UnischemaField("tag", bytes, (), ScalarCodec("binary")),
        UnischemaField("amount", Decimal, (), ScalarCodec("decimal(10,4)")),
        UnischemaField("code", str, (), ScalarCodec("varchar(12)")),
        UnischemaField("price", Decimal, (), ScalarCodec("decimal(12,3)")),
        UnischemaField("word", bytes, (), ScalarCodec("string")),
        UnischemaField("plain", "float32", nullable=True),
        UnischemaField("numbers", "int32", (None,)),
        UnischemaField("pose", "float64", (4, None), NdarrayCodec(), nullable=True),
        UnischemaField("mask", bool, (8, 8), CompressedNdarrayCodec()),
        UnischemaField("photo", "uint8", (None, None, 3), CompressedImageCodec("jpeg", 90)),
        UnischemaField("old", "uint8", (4, 5, 3), CompressedImageCodec("png")),
        UnischemaField("early", "uint8", (4, 5, 3), ReversedImageCodec("png")),
        UnischemaField("when", "datetime64[us]", (), ScalarCodec("timestamp")),
        UnischemaField("größe", "uint16", (), ScalarCodec("int")),
        UnischemaField("day", "datetime64[D]", (), ScalarCodec("date")),
        UnischemaField("text", str, (), ScalarCodec("string")),
    ],
)


@pytest.mark.parametrize("hijacked", [False, True], ids=["own class", "named tuple of PySpark"])
@pytest.mark.parametrize("package", PACKAGES)
def test_petastorm_schema_of_any_release_is_read(
    package: str, hijacked: bool, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    petastorm = Petastorm(package, monkeypatch)
    if hijacked:
        petastorm.hijack()
    for protocol in range(6):
        with subtests.test(protocol=protocol):
            pickled = pickle.dumps(petastorm.schema(*many_fields(petastorm)), protocol)
            assert (b"_restore" in pickled, b"_reconstructor" in pickled) == (hijacked, protocol < 2)
            assert schema_of(pickled) == MANY
            assert list(schema_of(pickled).fields) == list(MANY.fields)


def test_petastorm_schema_spark_types_may_be_objects_or_classes(
    petastorm: Petastorm, subtests: pytest.Subtests
) -> None:
    for name, expected in SPARK_TYPES.items():
        instance = petastorm.made(petastorm.spark, name)
        for spark_type in (instance, type(instance)):
            with subtests.test(name, spark_type=type(spark_type)):
                codec = petastorm.codec("ScalarCodec", _spark_type=spark_type)
                found = document_of(pickle.dumps(petastorm.schema(petastorm.Field("x", np.int64, (), codec))))
                assert found["fields"][0]["codec"] == {"id": "scalar", "spark_type": expected}


DTYPES = {name: kind.removeprefix("dtype ") for (module, name), kind in NAMES.items() if module == "numpy"}
del DTYPES["dtype"]


def test_petastorm_schema_numpy_type_names_are_read(subtests: pytest.Subtests) -> None:
    names = [name for name in DTYPES if hasattr(np, name)]
    assert len(names) > 25
    for name in names:
        with subtests.test(name):
            assert UnischemaField("x", DTYPES[name]) == UnischemaField("x", getattr(np, name))


def test_petastorm_schema_dtype_objects_are_read(petastorm: Petastorm, subtests: pytest.Subtests) -> None:
    dtypes = ["?", "i1", "<u2", ">i4", "f2", "f8", "c8", "c16", "S5", "U7", "O", "M8[us]", "m8[s]"]
    for dtype, protocol in itertools.product(dtypes, [0, 2, 5]):
        with subtests.test(dtype, protocol=protocol):
            field = petastorm.Field("x", np.dtype(dtype), ())
            found = schema_of(pickle.dumps(petastorm.schema(field), protocol))
            assert found.x.numpy_dtype == UnischemaField("x", dtype).numpy_dtype


def test_petastorm_schema_python_2_names_are_text() -> None:
    assert schema_of(schema_bytes(field_name=rb"S'gr\xc3\xb6\xc3\x9fe'" + b"\n")).fields.keys() == {"größe"}


def test_petastorm_schema_converts_to_a_schema_document() -> None:
    pickled = schema_bytes()
    schema = schema_of(pickled)
    assert petastorm_document(pickled, STORED, source="a test") == dump_document(schema.name, schema)


# A schema with one field in pickle protocol 0, whose parts can be replaced.

IMAGE = b"ccopy_reg\n_reconstructor\n(cpetastorm.codecs\n%s\nc__builtin__\nobject\nNtR"
STATE = b"(dS'_spark_type'\n%ssb"
SPARK = b"ccopy_reg\n_reconstructor\n(cpyspark.sql.types\nLongType\nc__builtin__\nobject\nNtR"


def schema_bytes(
    *,
    whole: bytes | None = None,
    schema_name: bytes = b"S'user'\n",
    fields: bytes | None = None,
    field: bytes | None = None,
    field_name: bytes = b"S'id'\n",
    dtype: bytes = b"cnumpy\nint64\n",
    shape: bytes = b"(t",
    codec: bytes | None = None,
    spark_type: bytes = SPARK,
    nullable: bytes = b"I00\n",
) -> bytes:
    codec = IMAGE % b"ScalarCodec" + STATE % spark_type if codec is None else codec
    field = field or b"cpetastorm.unischema\nUnischemaField\n(" + field_name + dtype + shape + codec + nullable + b"tR"
    fields = fields or b"ccollections\nOrderedDict\n((l(l" + field_name + b"a" + field + b"aatR"
    made = b"ccopy_reg\n_reconstructor\n(cpetastorm.unischema\nUnischema\nc__builtin__\nobject\nNtR"
    return (whole or made + b"(dS'_name'\n" + schema_name + b"sS'_fields'\n" + fields + b"sb") + b"."


PLACES = ["whole", "schema_name", "fields", "field", "field_name", "dtype", "shape", "codec", "spark_type", "nullable"]


def most_calls(pickled: bytes) -> int:
    """Return the limit of function calls for reading a pickle, which is linear in its bytes."""
    return 5_000 + 20 * len(pickled)


def refused(pickled: bytes) -> str:
    modules = set(sys.modules)
    with counted_calls() as calls, pytest.raises(MetadataError) as caught:
        schema_of(pickled)
    assert calls.count <= most_calls(pickled)
    assert set(sys.modules) == modules
    message = str(caught.value)
    assert message.startswith("a test")
    assert len(message) < 1000
    return message


def belongs(kind: str, place: str, *, called: bool) -> bool:
    """Return whether a name of this kind may be at this place, as it is or called without arguments."""
    if place == "dtype":
        return kind.startswith("dtype ") and not called
    if place == "spark_type":
        return kind.startswith("Spark ") and kind.removeprefix("Spark ") in {*SPARK_TYPES, "DecimalType"}
    if place == "codec":
        return called and kind in {"NdarrayCodec", "CompressedNdarrayCodec"}
    return False


def test_petastorm_schema_fixture_is_valid() -> None:
    assert schema_of(schema_bytes()) == Unischema("user", [UnischemaField("id", "int64", (), ScalarCodec("bigint"))])


@pytest.mark.parametrize("place", PLACES)
def test_petastorm_schema_allowed_name_in_a_wrong_position_raises(place: str, subtests: pytest.Subtests) -> None:
    for module, name in NAMES:
        with subtests.test(f"{module}.{name}"):
            for arguments in (None, b"(t", b"(Nt", b"(I1\nt", b"(S'id'\n(tNt")[: sized(full=5, quick=2)]:
                check_name_in_place(module, name, arguments, place)


def check_name_in_place(module: str, name: str, arguments: bytes | None, place: str) -> None:
    said = f"c{module}\n{name}\n".encode()
    pickled = schema_bytes(**{place: said if arguments is None else said + arguments + b"R"})
    if belongs(NAMES[module, name], place, called=arguments is not None) and arguments in (None, b"(t"):
        schema_sort = (MetadataError,) if place == "dtype" or "Spark" in NAMES[module, name] else ()
        try:
            schema_of(pickled)
        except schema_sort as problem:
            assert "cannot be" in str(problem)  # noqa: PT017 - a Spark type may be unfit for the dtype
    elif not (place == "fields" and name == "OrderedDict" and arguments == b"(t"):
        refused(pickled)


WRONG = {
    "a number": b"I1\n", "none": b"N", "truth": b"I01\n", "a float": b"F1.5\n", "text": b"S'x'\n", "a tuple": b"(t",
    "a list": b"(l", "a dict": b"(d", "a set": b"\x8f", "bytes": b"C\x01x",
    "nested": b"((((tttt", "pairs": b"((I1\nI2\ntt",
}  # fmt: skip
FITTING = {
    "schema_name": {"text"}, "fields": {"a dict"}, "field_name": {"text"}, "shape": {"a tuple"},
    "codec": {"none"}, "nullable": {"truth"},
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_petastorm_schema_value_of_another_type_raises(place: str, subtests: pytest.Subtests) -> None:
    for kind, said in WRONG.items():
        with subtests.test(kind):
            pickled = schema_bytes(**{place: said})
            if kind in FITTING.get(place, ()):
                schema_of(pickled)
            else:
                refused(pickled)


FIELD = b"cpetastorm.unischema\nUnischemaField\n"
BARE = FIELD + b"(S'id'\ncnumpy\nint64\n(tN"
RESTORED = b"cpyspark.serializers\n_restore\n("
NAMED_TUPLE = RESTORED + b"S'UnischemaField'\n"
REBUILT = b"ccopy_reg\n_reconstructor\n("
DECIMAL = SPARK.replace(b"LongType", b"DecimalType") + b"(dS'precision'\n"
TEXT_OF = SPARK.replace(b"LongType", b"VarcharType")
PHOTO = {"dtype": b"cnumpy\nuint8\n", "shape": b"(NNt"}
JPEG = IMAGE % b"CompressedImageCodec"
NEVER = {
    "a field under another name": schema_bytes(fields=b"(dS'other'\n" + BARE + b"I00\ntRs"),
    "a field of four parts": schema_bytes(field=BARE + b"tR"),
    "a field of six parts": schema_bytes(field=BARE + b"I00\nNtR"),
    "a named tuple of another name": schema_bytes(field=RESTORED + b"S'Row'\n(S'name'\nt(S'id'\nttR"),
    "a named tuple of other parts": schema_bytes(field=NAMED_TUPLE + b"(S'x'\nt(S'id'\nttR"),
    "a named tuple without a dtype": schema_bytes(field=NAMED_TUPLE + b"(S'name'\nt(S'id'\nttR"),
    "a field rebuilt as an object": schema_bytes(field=REBUILT + FIELD + b"c__builtin__\nobject\nNtR"),
    "a field rebuilt of nothing": schema_bytes(field=REBUILT + FIELD + b"c__builtin__\ntuple\nNtR"),
    "a schema rebuilt with a state": schema_bytes(
        whole=REBUILT + b"cpetastorm.unischema\nUnischema\nc__builtin__\nobject\nI1\ntR"
    ),
    "a size below zero": schema_bytes(shape=b"(I-1\nt"),
    "a size that is text": schema_bytes(shape=b"(S'1'\nt"),
    "a size that is truth": schema_bytes(shape=b"(I01\nt"),
    "a decimal of many digits": schema_bytes(spark_type=DECIMAL + b"I1000000\nsb"),
    "a decimal of text digits": schema_bytes(spark_type=DECIMAL + b"S'1'\nsb"),
    "a text of no length": schema_bytes(spark_type=TEXT_OF, dtype=b"cnumpy\nstr_\n"),
    "an array in a scalar": schema_bytes(spark_type=SPARK.replace(b"LongType", b"ArrayType")),
    "an image of another format": schema_bytes(codec=JPEG + b"(dS'_image_codec'\nS'.webp'\nsb", **PHOTO),
    "an image without a format": schema_bytes(codec=JPEG, **PHOTO),
    "an image of a text quality": schema_bytes(
        codec=JPEG + b"(dS'_image_codec'\nS'.png'\nsS'_quality'\nS'x'\nsb", **PHOTO
    ),
    "a state that is a list": schema_bytes(codec=IMAGE % b"NdarrayCodec" + b"(lb"),
    "a dtype of many bytes": schema_bytes(dtype=b"cnumpy\ndtype\n(S'i99'\ntR"),
    "a structured dtype": schema_bytes(dtype=b"cnumpy\ndtype\n(S'V8'\ntR"),
    "a dtype of code": schema_bytes(dtype=b"cnumpy\ndtype\n(S'i4,__import__(1)'\ntR"),
    "a dtype of dtypes": schema_bytes(dtype=b"cnumpy\ndtype\n(cnumpy\nint8\ntR"),
    "an object dtype of arrays": schema_bytes(dtype=b"cnumpy\nobject_\n", codec=IMAGE % b"NdarrayCodec"),
    "a schema that is a bomb": schema_bytes(schema_name=b"(tp0\n" + b"".join(b"0(g0\ng0\ntp0\n" for _ in range(50))),
    "a codec that is a bomb": schema_bytes(codec=b"(tp0\n" + b"".join(b"0(g0\ng0\ntp0\n" for _ in range(50))),
}  # fmt: skip


def test_invalid_petastorm_schema_raises(subtests: pytest.Subtests) -> None:
    for name, pickled in NEVER.items():
        with subtests.test(name):
            refused(pickled)


def test_schema_with_an_empty_field_name_is_read() -> None:
    assert schema_of(schema_bytes(field_name=b"S''\n")).fields.keys() == {""}


def test_petastorm_schema_custom_codec_raises_with_its_name(petastorm: Petastorm) -> None:
    codec = petastorm.made(petastorm.module("mypkg"), "TheirCodec")
    for protocol in range(6):
        pickled = pickle.dumps(petastorm.schema(petastorm.Field("x", np.int64, (), codec)), protocol)
        assert "'mypkg.TheirCodec'" in refused(pickled)


def real_pickles(fixtures_root: Path) -> Iterator[bytes]:
    for folder in ("petastorm-legacy/0.5.1", "petastorm-legacy/0.7.6", "petastorm-0.13.1/Meadow"):
        yield pq.read_metadata(fixtures_root / folder / "_common_metadata").metadata[PETASTORM_SCHEMA_KEY]


def test_truncated_petastorm_schema_raises(fixtures_root: Path) -> None:
    for pickled in real_pickles(fixtures_root):
        schema_of(pickled)
        for end in range(0, len(pickled), sized(full=1, quick=4)):
            with pytest.raises(MetadataError):
                petastorm_document(pickled[:end], STORED, source="a test")


@settings(max_examples=examples(300))
@given(data=st.data())
def test_damaged_petastorm_schema_parses_or_raises(fixtures_root: Path, data: st.DataObject) -> None:
    damaged = bytearray(data.draw(st.sampled_from(list(real_pickles(fixtures_root)))))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    modules = SimpleNamespace(before=set(sys.modules))
    try:
        schema_of(bytes(damaged))
    except MetadataError as problem:
        assert str(problem).startswith("a test")  # noqa: PT017 - a schema is as good an end
    assert {name for name in set(sys.modules) - modules.before if not name.startswith("hypothesis")} == set()
