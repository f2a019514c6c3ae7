"""Tests of columns as torch tensors: dtypes, zero-copy, times, text, ragged and missing values."""

from __future__ import annotations

import warnings
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from petastore.adapters.torch import DataLoader
from petastore.adapters.torch.tensors import BatchTensors
from petastore.decoding.decode import Decoded
from petastore.errors import DecodeError, InvalidArgumentError
from petastore.plan.cursor import Cursor
from petastore.readers.batch import Batch, Columns
from tests.adapters.torch.in_memory import SAME_DTYPE, ReaderInMemory, objects, only_batch


@pytest.mark.parametrize("name", SAME_DTYPE)
def test_tensor_has_the_dtype_and_memory_of_its_column(name: str) -> None:
    column = np.arange(6).astype(name).reshape(3, 2)
    tensor = only_batch(x=column)["x"]
    assert tensor.dtype is getattr(torch, name)
    assert np.array_equal(tensor.numpy(), column)
    assert tensor.data_ptr() == column.ctypes.data


@pytest.mark.parametrize(("stored", "promoted"), [("uint16", torch.int32), ("uint32", torch.int64)])
def test_unsigned_integers_are_promoted_to_signed(stored: str, promoted: torch.dtype) -> None:
    column = np.array([0, np.iinfo(stored).max], dtype=stored)
    tensor = only_batch(x=column)["x"]
    assert tensor.dtype is promoted
    assert tensor.tolist() == column.tolist()


def test_times_become_int64_nanoseconds() -> None:
    batch = only_batch(
        at=np.array(["1970-01-01T00:00:01"], dtype="datetime64[us]"), took=np.array([3], dtype="timedelta64[ms]")
    )
    assert batch["at"].tolist() == [10**9]
    assert batch["took"].tolist() == [3 * 10**6]
    assert batch["at"].dtype is batch["took"].dtype is torch.int64


def test_time_outside_int64_nanoseconds_raises() -> None:
    with pytest.raises(
        DecodeError,
        match=r"column 'at': times must be whole nanoseconds that fit into 64 bits, got 3000-01-01\. Leave the",
    ):
        only_batch(at=np.array(["3000-01-01"], dtype="datetime64[D]"))


def test_text_bytes_and_decimals_stay_python_values() -> None:
    batch = only_batch(t=objects("ü", None), b=objects(b"\0", b""), d=objects(Decimal("1.50"), Decimal(2)))
    assert batch == {"t": ["ü", None], "b": [b"\0", b""], "d": [Decimal("1.50"), Decimal(2)]}


def test_ragged_column_is_a_list_of_zero_copy_tensors() -> None:
    first, second = np.zeros((2, 3), np.uint8), np.ones((0, 3), np.uint16)
    tensors = only_batch(x=objects(first, second, None))["x"]
    assert tensors[0].data_ptr() == first.ctypes.data
    assert (tensors[1].shape, tensors[1].dtype) == ((0, 3), torch.int32)
    assert tensors[2] is None


def test_ragged_text_column_is_a_list() -> None:
    assert only_batch(x=objects(objects("a", "b"), np.array(["c"])))["x"] == [["a", "b"], ["c"]]


@pytest.mark.parametrize(
    "column",
    [
        np.arange(6)[::-1],
        np.arange(6, dtype=">i4"),
        np.frombuffer(np.arange(6, dtype="<i2").tobytes(), "<i2"),
        np.frombuffer(b"\0" + np.arange(6, dtype="<i8").tobytes(), "<i8", offset=1),
        np.zeros(6, dtype=[("a", "<i4"), ("b", "i1")])["a"],
    ],
    ids=["backwards", "big-endian", "read-only", "unaligned", "field of records"],
)
def test_array_that_torch_cannot_share_is_copied(column: NDArray[Any]) -> None:
    with warnings.catch_warnings(action="error"):
        tensor = only_batch(x=column)["x"]
    assert tensor.tolist() == column.tolist()
    tensor[0] = 99
    assert 99 not in column.tolist()


def test_missing_numbers_raise_with_column_name_and_count() -> None:
    ages = np.ma.MaskedArray([1, 2, 3], mask=[True, False, True])
    with pytest.raises(
        DecodeError,
        match=r"column 'age': nulls= must be set .* 2 of 3 values .*\. Pass nulls=.*'age': value.*DataLoader.*is_valid",
    ):
        only_batch(age=ages)


def test_masked_array_without_missing_values_is_zero_copy() -> None:
    column = np.arange(3.0)
    assert only_batch(x=np.ma.MaskedArray(column, mask=[False] * 3))["x"].data_ptr() == column.ctypes.data


def test_valid_column_is_a_bool_tensor() -> None:
    assert only_batch(id=np.arange(2), valid=np.array([True, False]))["valid"].dtype is torch.bool


def test_extended_precision_floats_raise_at_the_call() -> None:
    with pytest.raises(InvalidArgumentError, match="column 'x' must have a dtype that torch supports, got float128"):
        DataLoader(ReaderInMemory({"x": np.zeros(2, np.longdouble)}))


def test_tensors_of_slices_of_an_assembled_span_equal_its_rows() -> None:
    values = np.arange(40, dtype=np.float32)
    columns = Columns(
        {"x": Decoded(values, None), "y": Decoded(values + 1, None), "word": Decoded(values.astype(object), None)},
        ((("x", "y"), np.stack([values, values + 1])),),
    )
    make = BatchTensors()
    for first, stop in [(0, 10), (10, 20), (10, 20), (20, 27), (27, 27), (27, 34), (3, 5), (34, 40)]:
        batch = make(Batch(columns, first, stop, Cursor()))
        assert list(batch) == ["x", "y", "word"]
        assert batch["x"].tolist() == batch["word"] == values[first:stop].tolist()
        assert batch["y"].tolist() == (values[first:stop] + 1).tolist()
