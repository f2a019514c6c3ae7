"""What a column needs before a tensor can hold it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from petastore.adapters.columns import missing_rows, nanoseconds, present
from petastore.errors import DecodeError


def test_a_column_without_missing_values_is_passed_on_and_not_copied() -> None:
    column = np.arange(6).reshape(3, 2)
    assert present("id", column) is column
    assert np.shares_memory(present("id", np.ma.MaskedArray(column)), column)
    assert np.shares_memory(present("id", np.ma.MaskedArray(column, mask=np.zeros((3, 2), bool))), column)


def test_missing_values_are_refused_with_the_column_and_their_number() -> None:
    column = np.ma.MaskedArray(np.arange(6).reshape(3, 2), mask=[[True, True], [False, False], [False, True]])
    with pytest.raises(
        DecodeError, match=r"column 'xy': 2 of 3 values are missing.*schema_fields.*transform_spec"
    ) as caught:
        present("xy", column)
    assert caught.value.column == "xy"
    with pytest.raises(DecodeError, match=r"column 'name': 1 of 2 values is missing"):
        present("name", np.array(["a", None], dtype=object))


def test_rows_with_missing_values_are_found_in_every_kind_of_column() -> None:
    assert missing_rows(np.ma.MaskedArray([1, 2], mask=[False, True])).tolist() == [False, True]
    assert missing_rows(np.ma.MaskedArray([1, 2])).tolist() == [False, False]
    assert missing_rows(np.array([None, np.arange(3)], dtype=object)).tolist() == [True, False]
    assert missing_rows(np.array([1.0, np.nan])).tolist() == [False, False]


@given(
    times=hnp.arrays(np.int64, 5, elements=st.integers(-(2**62), 2**62)),
    unit=st.sampled_from(["D", "h", "m", "s", "ms", "us", "ns", "ps"]),
    kind=st.sampled_from(["datetime64", "timedelta64"]),
)
def test_times_are_exact_nanoseconds_or_refused(times: NDArray[np.int64], unit: str, kind: str) -> None:
    nanoseconds_each = {"D": 86_400 * 10**9, "h": 3600 * 10**9, "m": 60 * 10**9, "s": 10**9, "ms": 10**6, "us": 1000}
    exact = [int(time) * nanoseconds_each.get(unit, 1) for time in times]
    fits = all(-(2**63) < value < 2**63 for value in exact) and unit != "ps"
    column = times.view(f"{kind}[{unit}]")
    if fits:
        assert nanoseconds("at", column).tolist() == exact
    elif unit != "ps":
        with pytest.raises(DecodeError, match=r"column 'at': .* no whole number of nanoseconds"):
            nanoseconds("at", column)


@pytest.mark.parametrize("unit", ["D", "s", "ms", "us"])
def test_the_first_and_the_last_instant_of_64_bits_are_kept_and_their_neighbours_refused(unit: str) -> None:
    last = np.array([2**63 - 1], dtype="datetime64[ns]").astype(f"datetime64[{unit}]")
    assert nanoseconds("at", last)[0] == last.astype("datetime64[ns]").view(np.int64)[0] > 0
    with pytest.raises(DecodeError, match="nanoseconds"):
        nanoseconds("at", last + 1)
    first = -np.array([2**63 - 1]).view("timedelta64[ns]").astype(f"timedelta64[{unit}]")
    assert nanoseconds("took", first)[0] < 0
    with pytest.raises(DecodeError, match="nanoseconds"):
        nanoseconds("took", first - 1)


def test_times_finer_than_a_nanosecond_and_months_are_refused() -> None:
    with pytest.raises(DecodeError, match="no whole number of nanoseconds"):
        nanoseconds("at", np.array([1500], dtype="datetime64[ps]"))
    with pytest.raises(DecodeError, match="no fixed length"):
        nanoseconds("took", np.array([1], dtype="timedelta64[M]"))


def test_nanoseconds_are_viewed_and_foreign_byte_order_is_turned() -> None:
    column = np.array([1, 2], dtype="datetime64[ns]")
    assert np.shares_memory(nanoseconds("at", column), column)
    assert nanoseconds("at", column.astype(">M8[ns]")).tolist() == [1, 2]
    assert nanoseconds("at", np.array(["NaT"], dtype="datetime64[s]")).tolist() == [-(2**63)]
