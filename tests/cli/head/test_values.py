"""Tests of single values rendered as one line of text and as JSON."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from petastore.cli.head import as_json
from petastore.decoding.display import in_words

NAMES = np.array(["a b", None, "c\x1b[1m"], object)


@pytest.mark.parametrize(
    ("value", "dtype_name", "words"),
    [
        (np.int64(-1200), "int64", "-1200"),
        (np.float32(0.1), "float32", "0.1"),
        (np.bool_(True), "bool", "True"),
        (Decimal("3.7000"), "decimal", "3.7000"),
        (np.datetime64("2026-01-31T12:00", "us"), "datetime64[us]", "2026-01-31T12:00:00.000000"),
        ("x" * 1001, "str", "x" * 1000 + "…"),
        (b"\x00" * 25, "bytes", "b'" + r"\x00" * 24 + "'… 25 bytes"),
        (np.arange(8), "int64", "int64 8 [0 1 2 3 4 5 6 7]"),
        (np.arange(9).reshape(3, 3), "int64", "int64 3×3 [0 1 2 3 4 5 6 7 …]"),
        (np.zeros((0, 3), "float32"), "float32", "float32 0×3 []"),
        (np.array([np.nan, 1e-9, 123456.0]), "float64", "float64 3 [nan 1e-09 1.235e+05]"),
        ({"name": "\x1b[1m", "n": [1]}, "object", r"{'name': '\x1b[1m', 'n': [1]}"),
        (NAMES, "str", r"str 3 ['a b' missing 'c\x1b[1m']"),
        (np.array(["2026-01-31", "NaT"], "datetime64[D]"), "datetime64[D]", "datetime64[D] 2 [2026-01-31 NaT]"),
    ],
)
def test_value_renders_in_one_line(value: Any, dtype_name: str, words: str) -> None:
    assert in_words(value, dtype_name) == words


@pytest.mark.parametrize(
    ("value", "same"),
    [
        (None, None),
        (np.uint64(2**64 - 1), 2**64 - 1),
        (np.float32(0.1), float(np.float32(0.1))),
        (np.bool_(False), False),
        (np.array([1.5, np.nan, -np.inf]), [1.5, "nan", "-inf"]),
        (np.zeros((2, 0)), [[], []]),
        (NAMES, ["a b", None, "c\x1b[1m"]),
        (np.array(["2026-01-31", "NaT"], "datetime64[D]"), ["2026-01-31", "NaT"]),
        (np.timedelta64(90, "s"), "90 seconds"),
        (np.array([b"\xff"], object), ["/w=="]),
        (np.complex64(1 + 2j), "(1+2j)"),
        (
            {"a": [b"", {1: float("inf")}], "when": dt.date(2026, 1, 31)},
            {"a": ["", {"1": "inf"}], "when": "2026-01-31"},
        ),
        ([("key", Decimal(1))], [["key", "1"]]),
    ],
)
def test_value_renders_as_json(value: Any, same: Any) -> None:
    found = as_json(value)
    assert found == same
    assert json.loads(json.dumps(found, allow_nan=False)) == same
