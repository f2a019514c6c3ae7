"""Schema and rows with null values in columns of every kind, for the tests of all frameworks."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np

from petastore import Unischema, UnischemaField
from petastore.codecs import NdarrayCodec

ROWS = 23
SCHEMA = Unischema(
    "nullable",
    [
        UnischemaField("id", "int64"),
        UnischemaField("age", "int64", nullable=True),
        UnischemaField("height", "float32", nullable=True),
        UnischemaField("alive", "bool", nullable=True),
        UnischemaField("at", np.dtype("M8[us]"), nullable=True),
        UnischemaField("name", str, nullable=True),
        UnischemaField("raw", bytes, nullable=True),
        UnischemaField("price", Decimal, nullable=True),
        UnischemaField("pose", "float32", (2,), NdarrayCodec(), nullable=True),
        UnischemaField("track", "int16", (None, 2), NdarrayCodec(), nullable=True),
        UnischemaField("never", "int8", nullable=True),
    ],
)
NULLABLE = [field.name for field in SCHEMA if field.nullable]
EMPTY: dict[str, Any] = {
    "age": 0,
    "height": 0.0,
    "alive": False,
    "at": 0,
    "name": "",
    "raw": b"",
    "price": Decimal(0),
    "pose": [0.0, 0.0],
    "track": [],
    "never": 0,
}
"""Placeholder for a missing value of each column with `nulls="mask"`."""


def is_missing(name: str, number: int) -> bool:
    """Return whether a row has no value in a column; the rows differ by column, and `never` has all values."""
    return name not in ("id", "never") and (number + NULLABLE.index(name)) % 4 == 1


def value(name: str, number: int) -> Any:
    """Return the value of a column in a row, as if it were not missing."""
    return {
        "id": number,
        "age": 2**60 + number,
        "height": np.float32(number) / 2,
        "alive": True,
        "at": np.datetime64(number, "us"),
        "name": f"n{number}",
        "raw": bytes([number]),
        "price": Decimal(number) / 4,
        "pose": np.full(2, number, np.float32),
        "track": np.full((number % 3, 2), number, np.int16),
        "never": np.int8(number),
    }[name]


def row(number: int) -> dict[str, Any]:
    """Return the row with this id."""
    return {name: None if is_missing(name, number) else value(name, number) for name in SCHEMA.fields}
