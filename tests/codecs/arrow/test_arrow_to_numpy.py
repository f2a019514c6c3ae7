"""Tests of the conversion of scalar Arrow columns to NumPy: exact values, or an error with the first bad row."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from petastore import UnischemaField
from petastore.codecs.arrow.arrow_to_numpy import decode_scalars, plain_layout, put_numbers, refuse_nulls, times_of
from petastore.codecs.arrow.scalars import InexactError, exact_number
from petastore.errors import DecodeError

DTYPES = ["int8", "uint8", "int32", "uint32", "int64", "uint64", "bool", "float32", "float64"]
FIELD = UnischemaField("x", "int64")


@given(st.data(), st.sampled_from(DTYPES), st.sampled_from(DTYPES))
def test_number_conversion_is_exact_or_names_the_first_bad_row(data: st.DataObject, source: str, target: str) -> None:
    numbers = data.draw(hnp.arrays(source, st.integers(0, 6)))
    expected: list[Any] = []
    bad = None
    for row, number in enumerate(numbers):
        try:
            expected.append(exact_number(number, np.dtype(target)))
        except InexactError:
            bad = row
            break
    out = np.zeros(len(numbers), target)
    if bad is None:
        put_numbers(numbers, FIELD, out)
        assert np.array_equal(out, np.array(expected, target), equal_nan=target.startswith("float"))
    else:
        with pytest.raises(DecodeError, match="without loss") as caught:
            put_numbers(numbers, FIELD, out)
        assert caught.value.row == bad


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64"])
def test_float_to_integer_conversion_raises_out_of_range(dtype: str) -> None:
    above = float(np.iinfo(dtype).max + 1)
    out = np.zeros(1, dtype)
    put_numbers(np.trunc(np.nextafter([above], 0)), FIELD, out)
    assert 0 < int(out[0]) < above
    with pytest.raises(DecodeError, match="without loss"):
        put_numbers(np.array([above]), FIELD, out)


def decoded(cells: pa.Array, dtype: Any = "int64") -> NDArray[Any]:
    field = UnischemaField("x", dtype)
    out = np.empty(len(cells), field.dtype)
    decode_scalars(cells, field, out)
    return out


def test_error_for_a_null_names_its_row() -> None:
    refuse_nulls(pa.array([1, 2]), FIELD)
    for inside, said in (
        (False, "the cell must not be null, because a codec decodes only values that exist"),
        (True, "a value inside the cell is null"),
    ):
        with pytest.raises(DecodeError, match=said) as caught:
            refuse_nulls(pa.array([1, None, None]), FIELD, inside=inside)
        assert (caught.value.row, caught.value.column) == (1, "x")


def test_run_end_encoded_and_extension_columns_become_plain_columns() -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([7, 8]))
    assert plain_layout(runs).equals(pa.array([7, 7, 8]))
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16], pa.binary(16)))
    assert plain_layout(uuids).type == pa.binary(16)
    assert pa.types.is_dictionary(plain_layout(pa.array(["a"]).dictionary_encode()).type)


@pytest.mark.parametrize("cut", [slice(0, 9), slice(3, 7), slice(5, 5)])
@pytest.mark.parametrize("stored", [pa.int16(), pa.bool_(), pa.float32(), pa.decimal128(9, 0), pa.decimal256(50, 0)])
def test_column_slice_converts_only_its_rows(stored: pa.DataType, cut: slice) -> None:
    bits = [0, 1, 1, 0, 1, 1, 0, 0, 1]
    kind: Any = {pa.bool_(): bool, pa.int16(): int, pa.float32(): float}.get(stored, Decimal)
    whole = pa.array(map(kind, bits), stored)
    assert decoded(whole[cut]).tolist() == bits[cut]


def test_bad_dictionary_value_raises_only_if_a_row_uses_it() -> None:
    words = pa.DictionaryArray.from_arrays(pa.array([0, 0, 1]), pa.array([5, 300]))
    assert decoded(words[:2], "uint8").tolist() == [5, 5]
    with pytest.raises(DecodeError) as caught:
        decoded(words, "uint8")
    assert caught.value.row == 2


@pytest.mark.parametrize(
    ("cells", "dtype"),
    [
        (pa.array(["1"]), "int64"),
        (pa.array([1]), np.str_),
        (pa.array([1], pa.timestamp("s")), "timedelta64[s]"),
        (pa.array([1]), "datetime64[s]"),
        (pa.array([1]).cast(pa.decimal128(20, 0)), "bool"),
    ],
)
def test_conversion_to_numpy_raises_for_a_column_of_an_incompatible_type(cells: pa.Array, dtype: Any) -> None:
    with pytest.raises(DecodeError, match=r"which cannot be read as .*Declare a dtype that fits"):
        decoded(cells, dtype)


@pytest.mark.parametrize(
    ("stored", "dtype"),
    [
        (pa.date32(), "datetime64[D]"),
        (pa.date64(), "datetime64[ms]"),
        (pa.timestamp("us", "UTC"), "datetime64[us]"),
        (pa.time32("ms"), "timedelta64[ms]"),
        (pa.time64("ns"), "timedelta64[ns]"),
        (pa.duration("s"), "timedelta64[s]"),
    ],
)
def test_times_converted_to_numpy_keep_the_stored_unit(stored: pa.DataType, dtype: str) -> None:
    day = 86_400_000
    cells = pa.array([0, day], pa.int64() if stored.bit_width == 64 else pa.int32()).view(stored)
    assert times_of(cells).dtype == dtype
    assert times_of(cells).view(np.int64).tolist() == [0, day]
