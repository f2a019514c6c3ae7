"""An array is what its field declares, or is refused in words that say what to do."""

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
def test_below_an_empty_list_the_declared_sizes_hold(shape: Any, declared: Any, expected: Any) -> None:
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
def test_byte_order_width_of_text_and_unit_of_time_do_not_matter(stored: str, declared: Any, same: bool) -> None:
    assert same_dtype(np.dtype(stored), UnischemaField("x", declared)) is same


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "a null is written by leaving the cell out"),
        ([[1, 2], [3, 4]], "list came; give a numpy.ndarray"),
        (np.ma.masked_array(np.zeros((2, 2), np.int32), True), "MaskedArray came"),
        (np.int32(1), "int32 came; give a numpy.ndarray"),
        (np.zeros((2, 2)), r"an array of float64 came; convert it with value.astype\('int32'\)"),
        (np.zeros((3, 2), np.int32), r"an array of shape \(3, 2\) came"),
        (np.zeros(2, np.int32), r"an array of shape \(2,\) came"),
    ],
    ids=str,
)
def test_what_is_not_as_declared_is_refused_with_what_came(value: Any, said: str) -> None:
    with pytest.raises(EncodeError, match=said) as caught:
        array_to_write(MATRIX, value)
    assert caught.value.column == "x"


def test_what_is_as_declared_is_taken_as_it_is() -> None:
    array = np.zeros((2, 7), ">i4")
    assert array_to_write(MATRIX, array) is array
    scalar = array_to_write(UnischemaField("x", "int32"), np.int32(7))
    assert (scalar.shape, int(scalar)) == ((), 7)


@pytest.mark.parametrize("dtype", [Decimal, np.object_])
def test_arrays_of_objects_are_refused(dtype: Any) -> None:
    with pytest.raises(SchemaError, match=r"field 'x': NdarrayCodec stores .*ScalarCodec"):
        check_array_field(UnischemaField("x", dtype, (2,)), "NdarrayCodec")
    check_array_field(UnischemaField("x", "datetime64[s]", (2,)), "NdarrayCodec")


def test_arrays_are_alike_in_dtype_shape_and_layout() -> None:
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
