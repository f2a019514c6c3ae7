"""Tests of checking decoded filter values against the footer's minimum and maximum."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore.errors import DecodeError

DAY = dt.datetime.fromisoformat("2026-01-01")

COLUMNS: dict[str, tuple[pa.Array, bytes, bytes, Any]] = {
    "int64": (pa.array([1000, None, 3000]), struct.pack("<q", 1000), struct.pack("<q", 1001), 2000),
    "int32": (pa.array([7, None, 9], pa.int32()), struct.pack("<i", 7), struct.pack("<i", 8), 8),
    "float": (pa.array([1.5, float("nan"), 3], pa.float32()), struct.pack("<f", 1.5), struct.pack("<f", 2), 2),
    "text": (pa.array(["pear", None, "plum"]), b"plum", b"plug", "plug"),
    "time": (
        pa.array([DAY, None, DAY + dt.timedelta(2)], pa.timestamp("ms")),
        struct.pack("<q", 1_767_225_600_000),
        struct.pack("<q", 1_767_225_600_001),
        DAY + dt.timedelta(1),
    ),
    "decimal": (
        pa.array([Decimal("1.00"), None, Decimal("3.00")], pa.decimal128(20, 2)),
        (100).to_bytes(9, "big"),
        (101).to_bytes(9, "big"),
        Decimal(2),
    ),
}


def _read(folder: Path, operand: Any) -> int:
    filters = petastore.col("x") >= operand
    return petastore.make_batch_reader(str(folder), filters=filters).plan.num_rows


@pytest.mark.parametrize("kind", COLUMNS)
def test_filter_raises_for_values_outside_the_footer_minimum_and_maximum(kind: str, tmp_path: Path) -> None:
    values, bound, wrong, operand = COLUMNS[kind]
    pq.write_table(pa.table({"x": values}), tmp_path / "0.parquet")
    assert _read(tmp_path, operand) >= 1
    data = (tmp_path / "0.parquet").read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    assert bound in data[footer:]
    (tmp_path / "0.parquet").write_bytes(data[:footer] + data[footer:].replace(bound, wrong))
    with pytest.raises(
        DecodeError, match=r"within the minimum and maximum in the footer.*Either pyarrow .*petastore verify"
    ) as caught:
        _read(tmp_path, operand)
    assert (caught.value.file, caught.value.row_group, caught.value.column) == ("0.parquet", 0, "x")


def test_filter_accepts_nulls_where_the_footer_has_minimum_and_maximum(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": pa.array([None, 5, None, 9])}), tmp_path / "0.parquet")
    assert _read(tmp_path, 6) == 1
