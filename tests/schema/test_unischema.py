"""Tests of `Unischema`: an immutable value of ordered fields; named tuples, views, Spark and Arrow schemas."""

from __future__ import annotations

import pickle
import subprocess
import sys
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from petastore.codecs import CompressedImageCodec, NdarrayCodec, ScalarCodec
from petastore.errors import InvalidArgumentError, SchemaError
from petastore.schema import Unischema, UnischemaField

USER = Unischema(
    "user",
    [
        UnischemaField("id", "int64"),
        UnischemaField("age", "uint8", (), ScalarCodec("smallint"), nullable=True),
        UnischemaField("face", "uint8", (8, 8, 3), CompressedImageCodec("png")),
        UnischemaField("a-b", str),
    ],
)


def test_unischema_fields_are_attributes_and_items() -> None:
    assert list(USER.fields) == ["id", "age", "face", "a-b"]
    assert USER.age is USER["age"] is USER.fields["age"]
    assert USER["a-b"].name == "a-b"
    assert "a-b" in USER
    assert len(USER) == 4
    with pytest.raises(AttributeError, match=r"no field 'nobody'.*'id', 'age'"):
        _ = USER.nobody
    with pytest.raises(KeyError):
        USER["nobody"]


def test_unischema_field_named_like_an_attribute_is_accessed_only_by_item() -> None:
    schema = Unischema("s", [UnischemaField("name", "int32"), UnischemaField("fields", "int32")])
    assert schema.name == "s"
    assert schema["name"].dtype_name == schema["fields"].dtype_name == "int32"


def test_unischema_is_immutable() -> None:
    with pytest.raises(AttributeError, match="a Unischema is immutable, so 'age' cannot be set"):
        USER.age = 5
    with pytest.raises(TypeError):
        USER.fields["x"] = USER.id  # type: ignore[index]


def test_equal_unischemas_have_equal_hashes_and_pickle() -> None:
    again = Unischema("user", list(USER))
    copied = pickle.loads(pickle.dumps(USER))  # noqa: S301 - our own bytes
    assert USER == again == copied
    assert hash(USER) == hash(again) == hash(copied)
    assert USER.fingerprint == again.fingerprint == copied.fingerprint
    assert USER != "user"


@pytest.mark.parametrize(
    "other",
    [
        Unischema("users", list(USER)),
        Unischema("user", list(USER)[::-1]),
        Unischema("user", list(USER)[:-1]),
        Unischema("user", [*list(USER)[:-1], UnischemaField("a-b", str, nullable=True)]),
        Unischema("user", [*list(USER)[:-1], UnischemaField("a-b", str, (), ScalarCodec("varchar(9)"))]),
    ],
    ids=["name", "order", "fewer", "nullable", "codec"],
)
def test_unischema_equality_compares_every_attribute(other: Unischema) -> None:
    assert other != USER
    assert other.fingerprint != USER.fingerprint


def test_unischema_fingerprint_is_stable_across_processes() -> None:
    script = f"import petastore.codecs, pickle; print(pickle.loads({pickle.dumps(USER)!r}).fingerprint)"
    printed = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONHASHSEED": "7"}, capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == USER.fingerprint


def test_unischema_raises_for_duplicate_names_and_other_objects() -> None:
    with pytest.raises(SchemaError, match="fields must have distinct names, got 'id' twice in schema 's'"):
        Unischema("s", [USER.id, USER.id])
    with pytest.raises(SchemaError, match="fields must be UnischemaField objects, got 'id'"):
        Unischema("s", ["id"])  # type: ignore[list-item]


def test_schema_view_keeps_the_order_of_the_schema() -> None:
    view = USER.create_schema_view(["a.*", USER.id])
    assert view.name == "user_view"
    assert list(view.fields) == ["id", "age", "a-b"]
    with pytest.raises(InvalidArgumentError, match="nobody"):
        USER.create_schema_view(["nobody"])


def test_create_schema_view_without_fields_returns_an_empty_schema() -> None:
    view = USER.create_schema_view([])
    assert (view.name, len(view)) == (f"{USER.name}_view", 0)


def test_make_namedtuple_fills_missing_nullable_fields() -> None:
    row = USER.make_namedtuple(**{"id": 1, "face": b"", "a-b": "x"})
    assert row == (1, None, b"", "x")
    assert (row.id, row["a-b"], type(row).__name__) == (1, "x", "user")
    with pytest.raises(
        SchemaError, match=r"schema 'user' must have exactly its fields: \['face'\] missing, \['nose'\] unknown"
    ):
        USER.make_namedtuple(id=1, nose=2, **{"a-b": "x"})


@pytest.mark.parametrize("name", ["class", "two words", "None", ""])
def test_unischema_name_need_not_be_an_identifier_to_create_rows(name: str) -> None:
    assert repr(Unischema(name, [USER.id]).make_namedtuple(id=1)) == "Row(id=1)"


def test_as_spark_schema_has_the_types_of_the_stored_columns() -> None:
    from pyspark.sql import types

    schema = Unischema(
        "s",
        [
            UnischemaField("a", "uint8"),
            UnischemaField("b", "uint64", nullable=True),
            UnischemaField("c", "float32", (2,), NdarrayCodec()),
            UnischemaField("d", "int16", (2, None)),
            UnischemaField("e", Decimal, (), ScalarCodec("decimal(10,4)")),
            UnischemaField("f", "datetime64[us]", (), ScalarCodec("timestamp")),
            UnischemaField("g", "datetime64[us]"),
        ],
    )
    nested = types.ArrayType(types.ArrayType(types.ShortType(), False), False)
    assert schema.as_spark_schema() == types.StructType(
        [
            types.StructField("a", types.ShortType(), False),
            types.StructField("b", types.DecimalType(20, 0), True),
            types.StructField("c", types.BinaryType(), False),
            types.StructField("d", nested, False),
            types.StructField("e", types.DecimalType(10, 4), False),
            types.StructField("f", types.TimestampType(), False),
            types.StructField("g", types.TimestampNTZType(), False),
        ]
    )


def test_from_arrow_schema_skips_or_raises_for_unsupported_columns() -> None:
    arrow = pa.schema({"a": pa.int32(), "b": pa.month_day_nano_interval()})
    with pytest.warns(UserWarning, match="'b'.*petastore skips the column"):
        inferred = Unischema.from_arrow_schema(arrow)
    assert list(inferred.fields) == ["a"]
    with pytest.raises(SchemaError, match="'b'"):
        Unischema.from_arrow_schema(arrow, omit_unsupported_fields=False)


def test_from_arrow_schema_accepts_objects_with_a_schema() -> None:
    class Dataset:
        schema: Any = pa.schema([pa.field("a", pa.int32(), nullable=False)])

    assert Unischema.from_arrow_schema(Dataset()) == Unischema("inferred_schema", [UnischemaField("a", "int32")])
