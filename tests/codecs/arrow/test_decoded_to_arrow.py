"""Tests of the conversion of decoded columns to Arrow: equal values, nulls, nested lists and matching types."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa

from petastore.codecs import NdarrayCodec, ScalarCodec
from petastore.codecs.arrow.numpy_to_arrow import decoded_to_arrow
from petastore.schema import UnischemaField


def test_numbers_keep_their_dtype_and_missing_values_are_null() -> None:
    values = np.ma.masked_equal(np.array([1, 2, 3], np.uint16), 2)
    found = decoded_to_arrow(values, UnischemaField("n", np.uint16, nullable=True))
    assert found.equals(pa.array([1, None, 3], pa.uint16()))


def test_arrays_become_nested_lists() -> None:
    field = UnischemaField("x", np.int8, (None, 2), NdarrayCodec())
    values = np.empty(2, object)
    values[:] = [np.ones((1, 2), np.int8), np.zeros((2, 2), np.int8)]
    assert decoded_to_arrow(values, field).to_pylist() == [[[1, 1]], [[0, 0], [0, 0]]]
    took = UnischemaField("x", "timedelta64[s]", (2,))
    assert decoded_to_arrow(np.array([[1, 2]], "m8[s]"), took).type.value_type == pa.duration("s")


def test_text_bytes_and_decimals_have_matching_arrow_types() -> None:
    values = np.array([Decimal("1.50"), None], object)
    field = UnischemaField("d", Decimal, (), ScalarCodec("decimal(5,2)"), nullable=True)
    assert decoded_to_arrow(values, field).equals(pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)))
    assert decoded_to_arrow(np.array([b"a"], object), UnischemaField("b", bytes)).type == pa.binary()
    assert decoded_to_arrow(np.array([None], object), UnischemaField("s", str, nullable=True)).type == pa.string()
