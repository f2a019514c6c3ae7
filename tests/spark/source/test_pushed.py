"""Filters that Spark hands down leave out row groups, and never a row that they keep. Runs no Spark."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

import petastore
from petastore import Unischema, UnischemaField, open_dataset
from petastore.spark.source.pushed import row_groups_left

SCHEMA = Unischema(
    "s",
    [
        UnischemaField("whole", "int64", nullable=True),
        UnischemaField("small", "uint8"),
        UnischemaField("flag", "bool", nullable=True),
        UnischemaField("word", "str", nullable=True),
        UnischemaField("real", "float64", nullable=True),
    ],
)
VALUES: Mapping[str, Any] = {
    "whole": st.integers(-3, 3),
    "small": st.integers(0, 3),
    "flag": st.booleans(),
    "word": st.sampled_from(["", "a", "ab", "b", "é", "\U0001f600"]),
    "real": st.sampled_from([-1.0, -0.0, 0.0, 2.5, math.inf, math.nan]),
}
COMPARISONS: Mapping[Any, Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
}


def rows() -> Any:
    of_row = {field.name: VALUES[field.name] | st.none() if field.nullable else VALUES[field.name] for field in SCHEMA}
    return st.lists(st.fixed_dictionaries(of_row), min_size=1, max_size=12)


def leaves_of(name: str) -> Any:
    value, path = VALUES[name], st.just((name,))
    among = st.lists(value | st.none(), min_size=1, max_size=3).map(tuple)
    return st.one_of(
        *(st.builds(kind, path, value) for kind in (*COMPARISONS, EqualNullSafe)),
        *(st.builds(kind, path) for kind in (IsNull, IsNotNull)),
        st.builds(In, path, among),
        st.just(StringStartsWith(("word",), "a")),
    )


LEAVES = st.sampled_from(list(VALUES)).flatmap(leaves_of)
FILTERS = st.lists(LEAVES | st.builds(Not, LEAVES), min_size=1, max_size=3)


def placed(value: Any) -> Any:
    """By what Spark sorts: NaN is above all numbers, and equal to itself."""
    return (math.isnan(value), 0 if math.isnan(value) else value) if isinstance(value, float) else value


def truth(asked: Any, row: Mapping[str, Any]) -> bool | None:
    """What Spark says of a row."""
    if isinstance(asked, Not):
        inner = truth(asked.child, row)
        return None if inner is None else not inner
    value = row[asked.attribute[0]]
    if isinstance(asked, (IsNull, IsNotNull)):
        return (value is None) == isinstance(asked, IsNull)
    if isinstance(asked, EqualNullSafe):
        return value is not None and bool(placed(value) == placed(asked.value))
    if value is None:
        return None
    if isinstance(asked, In):
        is_there = any(placed(value) == placed(one) for one in asked.value if one is not None)
        return True if is_there else None if None in asked.value else False
    if isinstance(asked, StringStartsWith):
        return bool(value.startswith(asked.value))
    return COMPARISONS[type(asked)](placed(value), placed(asked.value))


@given(rows(), st.integers(1, 4), FILTERS)
def test_each_row_that_filters_keep_is_in_a_row_group_that_is_left(rows: Any, of_group: int, filters: Any) -> None:
    petastore.write_dataset("memory://pushed", SCHEMA, rows, mode="overwrite", rows_per_row_group=of_group)
    left = row_groups_left(open_dataset("memory://pushed"), filters).tolist()
    kept = {number // of_group for number, row in enumerate(rows) if all(truth(one, row) for one in filters)}
    assert kept <= set(left)
    assert left == sorted(set(left))


@pytest.fixture
def numbered(tmp_path: Path) -> Any:
    """Row groups of whole = small = 0, 1 | 2, 3 | 4 and none; in the last one there is neither word nor flag."""
    columns = {"whole": [0, 1, 2, 3, 4, None], "small": [0, 1, 2, 3, 4, 5], "real": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]}
    columns |= {"flag": [True, True, False, False, None, None], "word": ["a", "ab", "b", "c", None, None]}
    petastore.write_dataset(tmp_path / "s", SCHEMA, columns, rows_per_row_group=2)
    return open_dataset(tmp_path / "s")


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ([EqualTo(("whole",), 3)], [1]),
        ([In(("small",), (0, 5))], [0, 2]),
        ([LessThan(("whole",), 2)], [0]),
        ([LessThanOrEqual(("whole",), 2)], [0, 1]),
        ([GreaterThan(("small",), 3)], [2]),
        ([GreaterThanOrEqual(("small",), 3), EqualTo(("flag",), False)], [1]),
        ([IsNull(("word",))], [2]),
        ([IsNotNull(("flag",))], [0, 1]),
        ([Not(EqualTo(("flag",), True))], [1]),
        ([GreaterThan(("word",), "ab")], [1]),
        ([EqualTo(("small",), 300)], []),
        ([GreaterThan(("real",), 10.0)], [0, 1, 2]),
        ([EqualTo(("whole", "inner"), 3)], [0, 1, 2]),
        ([EqualTo(("whole",), "3"), EqualTo(("other",), 3), StringStartsWith(("word",), "z")], [0, 1, 2]),
    ],
)
def test_row_groups_without_such_a_row_are_left_out(numbered: Any, filters: Any, left: Any) -> None:
    assert row_groups_left(numbered, filters).tolist() == left


def test_what_directories_say_leaves_out_nothing(tmp_path: Path) -> None:
    for day in (1, 2):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(pa.table({"id": [day]}), tmp_path / f"day={day}" / "0.parquet")
    dataset = open_dataset(tmp_path)
    assert row_groups_left(dataset, [EqualTo(("day",), 1)]).tolist() == [0, 1]
    assert row_groups_left(dataset, [EqualTo(("day",), 1), EqualTo(("id",), 2)]).tolist() == [1]
