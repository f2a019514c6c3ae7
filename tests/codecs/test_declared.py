"""Tests of arrays compared with their field's dtype and shape: accepted unchanged, or an error with advice."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from petastore import UnischemaField
from petastore.codecs.declared import (
    array_to_write,
    arrays_alike,
    check_array_field,
    same_dtype,
    shape_below_empty,
)
from petastore.errors import EncodeError, SchemaError

MATRIX = UnischemaField("x", "int32", (2, None))


@pytest.mark.parametrize(
    ("shape", "declared", "expected"),
    [
        ((2, 3), (None, None), (2, 3)),
        ((0,), (None,), (0,)),
        ((0, 0, 0), (None, 4, None), (0, 4, 0)),
        ((2, 0, 0), (None, None, 5), (2, 0, 5)),
    ],
)
def test_shape_of_an_empty_nested_list_takes_the_declared_inner_sizes(shape: Any, declared: Any, expected: Any) -> None:
    assert shape_below_empty(shape, declared) == expected


@pytest.mark.parametrize(
    ("stored", "declared", "same"),
    [
        (">i4", "int32", True),
        ("<i4", "int64", False),
        ("<U3", np.str_, True),
        ("S3", np.bytes_, True),
        ("S3", np.str_, False),
        ("datetime64[ms]", "datetime64[ns]", True),
        ("timedelta64[ms]", "datetime64[ns]", False),
        ("O", np.str_, False),
        ("O", np.object_, False),
    ],
)
def test_dtype_check_ignores_byte_order_text_width_and_time_unit(stored: str, declared: Any, same: bool) -> None:
    assert same_dtype(np.dtype(stored), UnischemaField("x", declared)) is same


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            None,
            "column 'x': the value must not be None, because a codec encodes only values that exist. For a missing",
        ),
        ([[1, 2], [3, 4]], "must be a numpy.ndarray of .*, as the field declares, got list"),
        (
            np.ma.masked_array(np.zeros((2, 2), np.int32), True),
            "must be a numpy.ndarray of .*, as the field declares, got MaskedArray",
        ),
        (np.int32(1), "must be a numpy.ndarray of .*, as the field declares, got int32"),
        (np.zeros((2, 2)), r"got dtype float64\. If a conversion is intended, write value.astype\('int32'\)"),
        (np.zeros((3, 2), np.int32), r"as the field declares, got shape \(3, 2\)"),
        (np.zeros(2, np.int32), r"as the field declares, got shape \(2,\)"),
    ],
    ids=str,
)
def test_array_that_does_not_match_the_field_raises_when_written(value: Any, said: str) -> None:
    with pytest.raises(EncodeError, match=said) as caught:
        array_to_write(MATRIX, value)
    assert caught.value.column == "x"


def test_array_that_matches_the_field_is_returned_unchanged() -> None:
    array = np.zeros((2, 7), ">i4")
    assert array_to_write(MATRIX, array) is array
    scalar = array_to_write(UnischemaField("x", "int32"), np.int32(7))
    assert (scalar.shape, int(scalar)) == ((), 7)


@pytest.mark.parametrize("dtype", [Decimal, np.object_])
def test_ndarray_codec_raises_for_fields_of_objects(dtype: Any) -> None:
    with pytest.raises(SchemaError, match=r"field 'x': NdarrayCodec needs .*ScalarCodec"):
        check_array_field(UnischemaField("x", dtype, (2,)), "NdarrayCodec")
    check_array_field(UnischemaField("x", "datetime64[s]", (2,)), "NdarrayCodec")


def test_arrays_are_stacked_only_if_dtype_shape_and_memory_order_are_equal() -> None:
    one = np.zeros((2, 3))
    assert arrays_alike([one, one + 1])
    assert arrays_alike(np.zeros((4, 2, 3)))
    for other in (
        one.astype(np.float32),
        np.zeros((3, 2)),
        np.zeros((3, 2)).T,
        [[0.0] * 3] * 2,
        None,
        one.view(np.ma.MaskedArray),
    ):
        assert not arrays_alike([one, other])
    assert not arrays_alike([])
    assert not arrays_alike([None, one])
