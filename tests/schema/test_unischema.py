"""A schema is a frozen value of ordered fields, and makes rows and Spark schemas of them."""

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


def test_fields_are_ordered_attributes_and_items() -> None:
    assert list(USER.fields) == ["id", "age", "face", "a-b"]
    assert USER.age is USER["age"] is USER.fields["age"]
    assert USER["a-b"].name == "a-b"
    assert "a-b" in USER
    assert len(USER) == 4
    with pytest.raises(AttributeError, match=r"no field 'nobody'.*'id', 'age'"):
        _ = USER.nobody
    with pytest.raises(KeyError):
        USER["nobody"]


def test_a_field_whose_name_is_taken_is_reached_by_item() -> None:
    schema = Unischema("s", [UnischemaField("name", "int32"), UnischemaField("fields", "int32")])
    assert schema.name == "s"
    assert schema["name"].dtype_name == schema["fields"].dtype_name == "int32"


def test_a_schema_is_frozen() -> None:
    with pytest.raises(AttributeError, match="frozen"):
        USER.age = 5
    with pytest.raises(TypeError):
        USER.fields["x"] = USER.id  # type: ignore[index]


def test_equal_schemas_are_equal_hash_alike_and_survive_pickle() -> None:
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
def test_every_part_of_a_schema_counts(other: Unischema) -> None:
    assert other != USER
    assert other.fingerprint != USER.fingerprint


def test_the_fingerprint_is_the_same_in_another_interpreter() -> None:
    script = f"import petastore.codecs, pickle; print(pickle.loads({pickle.dumps(USER)!r}).fingerprint)"
    printed = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONHASHSEED": "7"}, capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == USER.fingerprint


def test_two_fields_of_one_name_and_other_things_are_refused() -> None:
    with pytest.raises(SchemaError, match="two fields 'id'"):
        Unischema("s", [USER.id, USER.id])
    with pytest.raises(SchemaError, match="made of UnischemaField"):
        Unischema("s", ["id"])  # type: ignore[list-item]


def test_a_view_keeps_the_order_of_the_schema() -> None:
    view = USER.create_schema_view(["a.*", USER.id])
    assert view.name == "user_view"
    assert list(view.fields) == ["id", "age", "a-b"]
    with pytest.raises(InvalidArgumentError, match="nobody"):
        USER.create_schema_view(["nobody"])


def test_a_view_of_nothing_has_no_fields() -> None:
    view = USER.create_schema_view([])
    assert (view.name, len(view)) == (f"{USER.name}_view", 0)


def test_rows_hold_every_field_and_missing_nullable_ones_are_none() -> None:
    row = USER.make_namedtuple(**{"id": 1, "face": b"", "a-b": "x"})
    assert row == (1, None, b"", "x")
    assert (row.id, row["a-b"], type(row).__name__) == (1, "x", "user")
    with pytest.raises(SchemaError, match=r"lacks.*'face'.*does not know.*'nose'"):
        USER.make_namedtuple(id=1, nose=2, **{"a-b": "x"})


@pytest.mark.parametrize("name", ["class", "two words", "None", ""])
def test_a_schema_whose_name_is_no_type_name_makes_rows_too(name: str) -> None:
    assert repr(Unischema(name, [USER.id]).make_namedtuple(id=1)) == "Row(id=1)"


def test_the_spark_schema_is_the_stored_one() -> None:
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


def test_inference_leaves_out_what_it_cannot_read_with_a_warning_or_refuses() -> None:
    arrow = pa.schema({"a": pa.int32(), "b": pa.month_day_nano_interval()})
    with pytest.warns(UserWarning, match="'b'.*left out"):
        inferred = Unischema.from_arrow_schema(arrow)
    assert list(inferred.fields) == ["a"]
    with pytest.raises(SchemaError, match="'b'"):
        Unischema.from_arrow_schema(arrow, omit_unsupported_fields=False)


def test_inference_takes_anything_that_has_a_schema() -> None:
    class Dataset:
        schema: Any = pa.schema([pa.field("a", pa.int32(), nullable=False)])

    assert Unischema.from_arrow_schema(Dataset()) == Unischema("inferred_schema", [UnischemaField("a", "int32")])
