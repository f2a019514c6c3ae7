"""Tests of column statistics in footers: bounds enclose the stored values, uncertain ones are ignored."""

from __future__ import annotations

import dataclasses
import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore import UnischemaField, open_dataset
from petastore.codecs import ScalarCodec
from petastore.errors import DatasetChangedError
from petastore.expressions import ColumnStatistics
from petastore.inventory import DataFile, Inventory
from petastore.schema.arrow import field_from_arrow
from petastore.storage.files.location import open_location
from petastore.storage.footers.footer import Footer
from petastore.storage.footers.footer_cache import FooterCache
from petastore.storage.footers.footer_statistics import footer_statistics, read_statistics
from petastore.storage.footers.footers import read_footer
from tests.storage.footers.by_hand import HIGH, LOW, binary, field, footer_by_hand, zigzag


def footer_of(folder: Path, table: pa.Table, **options: Any) -> Footer:
    pq.write_table(table, folder / "part.parquet", **options)
    return read_footer(open_location(str(folder)), "part.parquet")


def statistics_of(folder: Path, array: Any, field: UnischemaField | None = None, **options: Any) -> ColumnStatistics:
    table = pa.table({"x": array})
    field = field or field_from_arrow(table.schema.field("x"))
    return footer_statistics(footer_of(folder, table, **options), [field])["x"]


def bounds(statistics: ColumnStatistics) -> list[tuple[Any, Any]]:
    """Return (minimum, maximum) for each row group, with None for unknown bounds."""
    return [
        (low if has_low else None, high if has_high else None)
        for low, high, has_low, has_high in zip(
            statistics.minimum.tolist(),
            statistics.maximum.tolist(),
            statistics.has_minimum.tolist(),
            statistics.has_maximum.tolist(),
            strict=True,
        )
    ]


DAY = 86_400
KNOWN = [
    (pa.array([3, 1, None], pa.int8()), (1, 3)),
    (pa.array([200, 1, None], pa.uint8()), (1, 200)),
    (pa.array([2**31, 1], pa.uint32()), (1, 2**31)),
    (pa.array([2**63, 1], pa.uint64()), (1, 2**63)),
    (pa.array([-(2**63), 2**63 - 1], pa.int64()), (-(2**63), 2**63 - 1)),
    (pa.array([1.5, -2.0], pa.float16()), (-2.0, 1.5)),
    (pa.array([1.5, -2.0], pa.float32()), (-2.0, 1.5)),
    (pa.array([1.5, float("-inf")], pa.float64()), (float("-inf"), 1.5)),
    (pa.array([True, None], pa.bool_()), (True, True)),
    (pa.array(["é", "b"]), (b"b", "é".encode())),
    (pa.array(["é", "b"], pa.large_string()), (b"b", "é".encode())),
    (pa.array(["é", "b"], pa.string_view()), (b"b", "é".encode())),
    (pa.array(["é", "b"]).dictionary_encode(), (b"b", "é".encode())),
    (pa.array([b"\xff", b"\x01\x00"]), (b"\x01\x00", b"\xff")),
    (pa.array([b"\xff\x00", b"\x01\x02"], pa.binary(2)), (b"\x01\x02", b"\xff\x00")),
    (pa.array([Decimal("1.5"), Decimal(-3)], pa.decimal128(5, 2)), (Decimal("-3.00"), Decimal("1.50"))),
    (pa.array([Decimal("1.5"), Decimal(-3)], pa.decimal256(60, 2)), (Decimal("-3.00"), Decimal("1.50"))),
    (pa.array([dt.date(1970, 1, 3), dt.date(1969, 12, 31)], pa.date32()), (-1, 2)),
    (pa.array([dt.date(1970, 1, 3), dt.date(1969, 12, 31)], pa.date64()), (-1 * DAY * 1000, 2 * DAY * 1000)),
    (pa.array([5, -1], pa.timestamp("s")), (-1000, 5000)),
    (pa.array([5, -1], pa.timestamp("us")), (-1, 5)),
    (pa.array([5, -1], pa.timestamp("ns")), (-1, 5)),
    (pa.array([5, -1], pa.timestamp("ms", "Europe/Berlin")), (-1, 5)),
    (pa.array([5, 1], pa.time32("ms")), (1, 5)),
    (pa.array([5, 1], pa.time64("us")), (1, 5)),
    (pa.array([5, -1], pa.duration("us")), (-1, 5)),
]


@pytest.mark.parametrize(("array", "expected"), KNOWN, ids=[str(array.type) for array, _ in KNOWN])
def test_statistics_of_every_type_are_read(tmp_path: Path, array: Any, expected: Any) -> None:
    # The field has the dtype that is read back, because Parquet lacks some units.
    stored = footer_of(tmp_path, pa.table({"x": array})).arrow_schema.field("x")
    found = statistics_of(tmp_path, array, field_from_arrow(stored))
    if pa.types.is_date64(array.type):
        expected = (-1, 2)
    assert bounds(found) == [expected]
    assert found.nulls.tolist() == [array.null_count]
    assert found.may_be_nan.tolist() == [pa.types.is_floating(array.type)]


def test_statistics_of_integer_decimals_are_read(tmp_path: Path) -> None:
    array = pa.array([Decimal("1.5"), Decimal(-3)], pa.decimal128(9, 2))
    assert bounds(statistics_of(tmp_path, array, store_decimal_as_integer=True)) == [
        (Decimal("-3.00"), Decimal("1.50"))
    ]


HALVES = (float(np.float16(0.1)), float(np.float16(0.7)))


@pytest.mark.parametrize(
    ("array", "field", "expected"),
    [
        (pa.array([3, 1], pa.int32()), UnischemaField("x", "uint8", (), ScalarCodec("int")), (1, 3)),
        (pa.array([3, 1], pa.decimal128(20, 0)), UnischemaField("x", "uint64"), (1, 3)),
        (pa.array([-3, 1], pa.decimal128(20, 0)), UnischemaField("x", "uint64"), (None, 1)),
        (
            pa.array([0.1, 0.7], pa.float32()),
            UnischemaField("x", "float16"),
            (float(np.float16(0.1)), float(np.float16(0.7))),
        ),
        (pa.array([3, 1], pa.int64()), UnischemaField("x", "float32"), (1.0, 3.0)),
        (pa.array([b"a", b"b"]), UnischemaField("x", "str"), (b"a", b"b")),
        (pa.array(["1", "10", "9"]), UnischemaField("x", Decimal), (None, None)),
        (pa.array([1, 0], pa.int32()), UnischemaField("x", "bool"), (None, None)),
        (pa.array([1, 3], pa.timestamp("ms")), UnischemaField("x", "datetime64[us]"), (1000, 3000)),
        (pa.array([1, 1999], pa.timestamp("us")), UnischemaField("x", "datetime64[ms]"), (0, 2)),
        (pa.array([0, 2**61], pa.timestamp("ms")), UnischemaField("x", "datetime64[ns]"), (0, None)),
        (pa.array([1, 3], pa.int64()), UnischemaField("x", "timedelta64[ms]"), (1, 3)),
        (pa.array([dt.date(1970, 1, 2)]), UnischemaField("x", "datetime64[us]"), (DAY * 10**6, DAY * 10**6)),
    ],
    ids=str,
)
def test_statistics_have_the_dtype_of_the_field(tmp_path: Path, array: Any, field: Any, expected: Any) -> None:
    assert bounds(statistics_of(tmp_path, array, field)) == [expected]


def test_statistics_of_int96_are_ignored(tmp_path: Path) -> None:
    array = pa.array([5, -1], pa.timestamp("ns"))
    assert bounds(statistics_of(tmp_path, array, use_deprecated_int96_timestamps=True)) == [(None, None)]


def test_statistics_of_nan_are_ignored(tmp_path: Path) -> None:
    found = statistics_of(tmp_path, pa.array([float("nan"), 1.0, float("nan"), float("nan")]), row_group_size=2)
    assert bounds(found) == [(1.0, 1.0), (None, None)]
    assert found.may_be_nan.tolist() == [True, True]


def test_without_statistics_only_required_columns_have_a_known_null_count(tmp_path: Path) -> None:
    found = statistics_of(tmp_path, pa.array([1, None]), write_statistics=False)
    assert (bounds(found), found.nulls.tolist()) == ([(None, None)], [-1])
    schema = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    footer = footer_of(tmp_path, pa.table({"x": [1, 2]}, schema=schema), write_statistics=False)
    assert footer_statistics(footer, [UnischemaField("x", "int64")])["x"].nulls.tolist() == [0]


def test_statistics_belong_to_their_row_group_and_column(tmp_path: Path) -> None:
    table = pa.table({"s": [{"p": n, "q": -n} for n in range(9)], "x": range(9), "y": [str(n) for n in range(9)]})
    footer = footer_of(tmp_path, table, row_group_size=4)
    found = footer_statistics(footer, [UnischemaField("x", "int64"), UnischemaField("y", "str")])
    assert bounds(found["x"]) == [(0, 3), (4, 7), (8, 8)]
    assert bounds(found["y"]) == [(b"0", b"3"), (b"4", b"7"), (b"8", b"8")]
    nested = footer_statistics(footer, [UnischemaField("s", "object")])["s"]
    assert bounds(nested) == [(None, None)] * 3


def test_statistics_are_read_only_for_selected_files(tmp_path: Path) -> None:
    for number in range(3):
        pq.write_table(pa.table({"x": [number, number + 10]}), tmp_path / f"{number}.parquet", row_group_size=1)
    dataset = open_dataset(str(tmp_path))
    (tmp_path / "0.parquet").unlink()
    field = UnischemaField("x", "int64", nullable=True)
    found = read_statistics(
        dataset.location, dataset.inventory, [field], groups=np.array([2, 5]), footers=FooterCache()
    )["x"]
    assert bounds(found) == [(None, None), (None, None), (1, 1), (11, 11), (2, 2), (12, 12)]
    assert found.nulls.tolist() == [-1, -1, 0, 0, 0, 0]


def test_statistics_raise_for_missing_row_groups(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), tmp_path / "a.parquet")
    size = (tmp_path / "a.parquet").stat().st_size
    lying = Inventory(
        files=(DataFile("a.parquet", size),),
        **{name: np.array([0, 0 if name == "file" else 1]) for name in ("file", "ordinal", "rows")},
        **{name: np.array([1, 1]) for name in ("stored_bytes", "decoded_bytes")},
    )
    asked = [UnischemaField("x", "int64")]
    with pytest.raises(DatasetChangedError, match=r"a\.parquet must have at least 2 row groups, .* got 1"):
        read_statistics(open_location(str(tmp_path)), lying, asked, groups=np.array([0]), footers=FooterCache())


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (HIGH, LOW, (None, None)),
        (LOW[:3], HIGH, (None, 7)),
        (b"", HIGH + b"\x00", (None, None)),
        (LOW, HIGH, (-3, 7)),
    ],
    ids=["upside down", "short", "empty", "sound"],
)
def test_impossible_statistics_are_ignored(tmp_path: Path, low: bytes, high: bytes, expected: Any) -> None:
    honest = footer_of(tmp_path, pa.table({"x": pa.array([1, 2], pa.int32())}))
    statistics = field(3, 6, zigzag(-5)) + field(2, 8, binary(high)) + field(1, 8, binary(low))
    lying = dataclasses.replace(honest, encoded=footer_by_hand(statistics))
    lying.__dict__["groups"] = honest.groups
    found = footer_statistics(lying, [UnischemaField("x", "int32")])["x"]
    assert bounds(found) == [expected]
    assert found.nulls.tolist() == [-1]
