"""Tests of pandas DataFrames for predicates: nullable dtypes, missing values and time zones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from petastore.decoding.frame import frame_answers, frame_of

MISSING = np.array([False, True])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64", "bool"])
def test_dataframe_numbers_with_nulls_have_nullable_dtypes(dtype: str) -> None:
    most: Any = np.iinfo(dtype).max if dtype != "bool" else True
    found = frame_of({"x": np.ma.MaskedArray(np.array([most, 0], dtype), mask=MISSING)}, {})["x"]
    assert found[0] == most
    assert found.isna().tolist() == MISSING.tolist()
    assert frame_answers(found == most).tolist() == [True, False]


def test_dataframe_missing_values_are_pandas_na_values() -> None:
    text = np.array(["a", None], dtype=object)
    times = np.ma.MaskedArray(np.array([1, 0], "datetime64[us]"), mask=MISSING)
    frame = frame_of({"f": np.ma.MaskedArray([0.5, 0.0], mask=MISSING), "t": text, "at": times}, {"at": "Asia/Tokyo"})
    assert [frame[name].isna().tolist() for name in frame] == [MISSING.tolist()] * 3
    assert str(frame["at"].dtype) == "datetime64[us, Asia/Tokyo]"
    assert frame["at"][0] == pd.Timestamp("1970-01-01T00:00:00.000001Z")


def test_dataframe_arrays_are_objects() -> None:
    block = np.ma.MaskedArray(np.ones((2, 3)), mask=np.broadcast_to(MISSING[:, None], (2, 3)))
    found = frame_of({"pose": block, "id": np.arange(2)}, {})
    assert found["pose"][0].shape == (3,)
    assert found["pose"][1] is None
    assert str(found["id"].dtype) == "int64"


def test_dataframe_predicate_results_are_booleans() -> None:
    assert frame_answers(pd.Series([True, None], dtype=object)).tolist() == [True, False]
    assert frame_answers(pd.Series([True, None], dtype="boolean")).dtype == np.bool_
    for other in (pd.Series([1, 0]), pd.Series(["yes", "no"]), True, np.array([True])):
        assert frame_answers(other) is other


@pytest.mark.parametrize("zone", ["Nowhere/Land", "+99:99", "a/../b"])
def test_dataframe_times_of_an_unknown_zone_are_in_utc(zone: str) -> None:
    found = frame_of({"at": np.array([1], "datetime64[us]")}, {"at": zone})["at"]
    assert str(found.dtype) == "datetime64[us, UTC]"
    assert found[0] == pd.Timestamp("1970-01-01T00:00:00.000001Z")
