"""Tests of arrays for TensorFlow: dtypes, text, times, zero-copy and alignment."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from petastore.errors import InvalidArgumentError
from petastore.schema.field import UnischemaField

pytestmark = [pytest.mark.tf, pytest.mark.slow]


@pytest.mark.parametrize("name", ["bool", "int8", "uint16", "int64", "float16", "float64", "complex64"])
def test_tensors_have_the_declared_dtype(name: str) -> None:
    import tensorflow as tf

    from petastore.adapters.tensorflow.crossing import tf_dtype

    assert tf_dtype(UnischemaField("x", name)) is tf.as_dtype(name)


@pytest.mark.parametrize("kind", [str, bytes, Decimal])
def test_text_is_tf_string_and_times_are_int64(kind: Any) -> None:
    import tensorflow as tf

    from petastore.adapters.tensorflow.crossing import tf_dtype

    assert tf_dtype(UnischemaField("x", kind)) is tf.string
    assert tf_dtype(UnischemaField("x", "datetime64[D]")) is tf.int64


@pytest.mark.parametrize("name", ["float128", "complex256"])
def test_unsupported_dtype_raises_and_names_the_column(name: str) -> None:
    from petastore.adapters.tensorflow.crossing import tf_dtype

    with pytest.raises(
        InvalidArgumentError, match=f"column 'x' must have a dtype that TensorFlow supports, got {name}"
    ):
        tf_dtype(UnischemaField("x", name))


def test_arrays_are_converted_for_tensorflow() -> None:
    from petastore.adapters.tensorflow.crossing import plain

    swapped = np.array([1, 2], ">i4")
    assert plain("x", swapped).dtype.isnative
    assert plain("x", swapped).tolist() == [1, 2]
    assert plain("x", np.array([1, 2], "datetime64[us]")).tolist() == [1000, 2000]
    prices = np.array([Decimal("1.50"), Decimal(20)], dtype=object)
    assert plain("x", prices).tolist() == ["1.5", "2E+1"]


def test_supported_arrays_are_zero_copy() -> None:
    from petastore.adapters.tensorflow.crossing import plain

    for values in (np.arange(3), np.array(["a", "b"], dtype=object)):
        assert np.shares_memory(plain("x", values), values)


@pytest.mark.parametrize("size", [1, 64, 65])
def test_arrays_are_aligned_for_zero_copy(size: int) -> None:
    from petastore.adapters.tensorflow.crossing import aligned

    array = aligned(size, np.dtype("float64"))
    assert array.shape == (size,)
    assert array.ctypes.data % 64 == 0
