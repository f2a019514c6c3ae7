"""Tests of `ColumnStatistics`: equal minimum and maximum decide filters, and array lengths must match."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from petastore import UnischemaField, col
from petastore.errors import InvalidArgumentError
from petastore.expressions import ColumnStatistics, bind
from petastore.plan.prune import prune


def test_statistics_with_equal_min_and_max_decide_filters_except_for_nan() -> None:
    values, missing, rows = np.array([1.0, 2.0, np.nan, 0.0]), np.array([False, False, False, True]), np.full(4, 5)
    known = ColumnStatistics.of_values(values, missing, rows)
    assert known.nulls.tolist() == [0, 0, 0, 5]
    fields = {"x": UnischemaField("x", "float64", nullable=True)}
    for expression, kept, undecided in [
        (col("x") < 2, [True, False, False, False], [2]),
        (col("x") != 2, [True, False, False, False], [2]),
        (col("x").is_null(), [False, False, False, True], []),
    ]:
        verdict = prune(bind(expression, fields, among="x"), {"x": known}, rows)
        assert (verdict.all.tolist(), verdict.undecided.tolist()) == (kept, undecided)


def test_column_statistics_with_arrays_of_different_lengths_raise() -> None:
    with pytest.raises(InvalidArgumentError, match="must have the same shape, got"):
        dataclasses.replace(ColumnStatistics.unknown(3), nulls=np.zeros(2, np.int64))
