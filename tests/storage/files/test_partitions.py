"""Tests of Hive partitions: directory names become typed columns, and values round-trip without loss."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from petastore.errors import SchemaError
from petastore.inventory import DataFile
from petastore.schema import UnischemaField
from petastore.storage.files.listing import parse_partitions, partition_fields, partition_value


def files_with(key: str, values: list[str | None]) -> list[DataFile]:
    return [DataFile(f"{number}.parquet", 1, partitions=((key, value),)) for number, value in enumerate(values)]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("part-0.parquet", ()),
        ("a=1/b=x/part-0.parquet", (("a", "1"), ("b", "x"))),
        ("plain/a=1/part-0.parquet", (("a", "1"),)),
        ("a=__HIVE_DEFAULT_PARTITION__/p", (("a", None),)),
        ("a=x%2Fy%3D1/p", (("a", "x/y=1"),)),
        ("a%20b=1/p", (("a b", "1"),)),
        ("a=b=c/p", (("a", "b=c"),)),
        ("a=/p", (("a", ""),)),
        ("=1/p", ()),
        ("a=%FF/p", (("a", "%FF"),)),
        ("x=1.parquet", ()),
    ],
)
def test_hive_directories_become_keys_and_values(path: str, expected: tuple[tuple[str, str | None], ...]) -> None:
    assert parse_partitions(path) == expected


def test_duplicate_partition_key_raises() -> None:
    with pytest.raises(SchemaError, match=r"a=1/a=2/p\.parquet: partition keys must be distinct, got 'a' twice"):
        parse_partitions("a=1/a=2/p.parquet")


@given(st.text(min_size=1, max_size=20).filter(lambda text: text != "__HIVE_DEFAULT_PARTITION__"))
def test_percent_encoded_partition_values_are_decoded(value: str) -> None:
    encodable = value.encode("utf-8", "ignore").decode()
    assert parse_partitions(f"key={quote(encodable, safe='')}/p.parquet") == (("key", encodable),)


@pytest.mark.parametrize(
    ("values", "dtype", "nullable"),
    [
        (["1", "-7", "0"], "int64", False),
        (["1", None], "int64", True),
        (["9223372036854775807", "-9223372036854775808"], "int64", False),
        (["9223372036854775808"], "str", False),
        (["01", "2"], "str", False),
        (["+1"], "str", False),
        (["-0"], "str", False),
        (["1_000"], "str", False),
        (["٣"], "str", False),
        ([" 1"], "str", False),
        (["2026-01-31", "0001-01-01", "9999-12-31"], "datetime64[D]", False),
        (["2024-02-29", None], "datetime64[D]", True),
        (["2026-02-29"], "str", False),
        (["2026-01-31", "7"], "str", False),
        (["0000-01-01"], "str", False),
        (["2026-1-31"], "str", False),
        (["２026-01-31"], "str", False),
        (["2026-01-31 00:00:00"], "str", False),
        (["2026-W05-6"], "str", False),
        (["true", "false"], "bool", False),
        (["true", None], "bool", True),
        (["true", "1"], "str", False),
        (["True", "False"], "str", False),
        ([None, None], "str", True),
        (["1.0"], "str", False),
    ],
)
def test_partition_column_is_typed_only_if_lossless(values: list[str | None], dtype: str, nullable: bool) -> None:
    assert partition_fields(files_with("k", values)) == (UnischemaField("k", dtype, nullable=nullable),)


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.none(), min_size=1))
def test_partition_int64_values_round_trip(numbers: list[int | None]) -> None:
    texts = [None if number is None else str(number) for number in numbers]
    (field,) = partition_fields(files_with("k", texts))
    if any(number is not None for number in numbers):
        assert field.dtype == np.int64
        assert [partition_value(text, field) for text in texts] == numbers


DATES = st.dates().map(str)


@given(st.lists(st.text(max_size=5), min_size=1) | st.lists(DATES, min_size=1) | st.lists(DATES | st.text("-019")))
def test_partition_value_text_round_trips(texts: list[str]) -> None:
    assume(texts)
    (field,) = partition_fields(files_with("k", list(texts)))
    assert [str(partition_value(text, field)) for text in texts] == texts


def test_partition_key_missing_in_a_file_is_nullable() -> None:
    files = [DataFile("a=1/x", 1, partitions=(("a", "1"),)), DataFile("x", 1)]
    assert partition_fields(files) == (UnischemaField("a", "int64", nullable=True),)


def test_dataset_without_partitions_has_no_partition_fields() -> None:
    assert partition_fields([]) == ()
    assert partition_fields([DataFile("x", 1)]) == ()


@pytest.mark.parametrize(
    ("text", "dtype", "expected"),
    [
        ("7", "int8", np.int8(7)),
        ("7", "uint64", np.uint64(7)),
        ("0.5", "float32", np.float32(0.5)),
        ("true", "bool", np.True_),
        ("7", "str", "7"),
        ("7", "bytes", b"7"),
        ("1.50", "decimal", Decimal("1.50")),
        ("2026-01-31 12:30:00", "datetime64[us]", np.datetime64("2026-01-31T12:30:00", "us")),
    ],
)
def test_partition_value_has_the_declared_dtype(text: str, dtype: str, expected: Any) -> None:
    value = partition_value(text, UnischemaField("k", dtype))
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("text", "dtype", "shape"),
    [
        ("x", "int64", ()), ("300", "uint8", ()), ("-1", "uint8", ()), ("x", "float64", ()), ("2", "bool", ()),
        ("x", "decimal", ()), ("x", "datetime64[D]", ()), ("7", "int64", (1,)),
    ],
)  # fmt: skip
def test_partition_value_outside_the_dtype_raises(text: str, dtype: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(SchemaError, match=f"the partition k={text} must be "):
        partition_value(text, UnischemaField("k", dtype, shape))


def test_hive_null_is_none_for_every_dtype() -> None:
    assert partition_value(None, UnischemaField("k", "float32")) is None
