"""Tests of filter literals: one normalized form for equal values, and errors for values that cannot be compared."""

from __future__ import annotations

import datetime as dt
import enum
import zoneinfo
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from petastore import col
from petastore.errors import InvalidArgumentError
from petastore.expressions.literal import as_literal, literal_json

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")


class Colour(enum.IntEnum):
    RED = 3


class Split(str, enum.Enum):  # noqa: UP042 - the older spelling prints another text
    TRAIN = "train"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (np.int8(3), 3),
        (np.bool_(True), True),
        (np.float32(0.1), float(np.float32(0.1))),
        (np.str_("x"), "x"),
        (bytearray(b"x"), b"x"),
        (np.array(3), 3),
        (Colour.RED, 3),
        (Split.TRAIN, "train"),
        (Decimal("1.50"), Decimal("1.50")),
        (dt.date(2026, 1, 31), np.datetime64("2026-01-31", "D")),
        (dt.datetime(2026, 1, 31, 12), np.datetime64("2026-01-31T12", "us")),  # noqa: DTZ001
        (dt.datetime(2026, 1, 31, 12, tzinfo=BERLIN), np.datetime64("2026-01-31T11", "us")),
        (pd.Timestamp("2026-01-31 00:00:00.000000001"), np.datetime64("2026-01-31T00:00:00.000000001", "ns")),
        (np.datetime64("2026", "Y"), np.datetime64("2026-01-01", "D")),
        (np.datetime64("2026-01-31T12", "h"), np.datetime64("2026-01-31T12:00:00", "s")),
        (dt.timedelta(milliseconds=3), np.timedelta64(3000, "us")),
        (np.timedelta64(2, "h"), np.timedelta64(7200, "s")),
        (dt.time(0, 0, 1), np.timedelta64(1_000_000, "us")),
    ],
    ids=repr,
)
def test_literals_are_normalized(given: Any, kept: Any) -> None:
    found = as_literal(given)
    assert found == kept
    assert type(found) is type(kept)
    assert literal_json(found) == literal_json(kept)


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        (None, "is_null"),
        ([1, 2], "isin"),
        (np.arange(3), "isin"),
        (np.datetime64("NaT"), "is_null"),
        (
            np.timedelta64(3, "M"),
            r"filters must compare with a time whose unit is days or less, got np\.timedelta64\(3,'M'\) in",
        ),
        (np.datetime64(2**62, "Y"), "filters must compare with a time that the unit 'D' can hold, got"),
        (
            dt.datetime.max.replace(tzinfo=dt.timezone(-dt.timedelta(hours=3))),
            r"filters must compare with a time in the years 1 to 9999 in UTC, got datetime\.datetime\(9999, 12, 31,",
        ),
        (Decimal("NaN"), "finite"),
        (Decimal("Infinity"), "finite"),
        (1 + 2j, "complex"),
        (object(), "object"),
        (col("b"), "predicate="),
    ],
    ids=lambda part: type(part).__name__ if type(part) is object else repr(part),
)
def test_incomparable_literal_raises(given: Any, advice: str) -> None:
    with pytest.raises(InvalidArgumentError, match=advice):
        _ = col("a") == given


@pytest.mark.parametrize("values", ["train", b"train", 7, None, col("b")])
def test_isin_requires_a_collection(values: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="values must be a list or another collection, got"):
        col("a").isin(values)
