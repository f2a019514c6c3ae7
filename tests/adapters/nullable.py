"""Rows with missing values in each kind of column, for all frameworks."""

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
"""What stands for missing values with `nulls="mask"`."""


def is_missing(name: str, number: int) -> bool:
    """Whether a row has no such value: others in each column, and none in `never`."""
    return name not in ("id", "never") and (number + NULLABLE.index(name)) % 4 == 1


def value(name: str, number: int) -> Any:
    """What a row has, whether it is missing or not."""
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
    """The row with this id."""
    return {name: None if is_missing(name, number) else value(name, number) for name in SCHEMA.fields}
