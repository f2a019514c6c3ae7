"""Tests of pruning by statistics: it never drops matching row groups, and prunes whenever it is possible."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from petastore.expressions import ColumnStatistics, Expression, bind, col
from petastore.plan.prune import Verdict, prune
from petastore.schema import UnischemaField
from tests.laws.filter_laws import FilteredRows, filtered_rows
from tests.tier import examples


def in_domain(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return int(value.astype(np.int64))
    return value.item() if isinstance(value, np.generic) else value


@st.composite
def statistics_of(draw: Any, values: list[Any], rows: int, *, is_float: bool) -> dict[str, Any]:
    """Draw correct statistics of a row group, some of which may be missing."""
    present = [in_domain(value) for value in values if value is not None]
    numbers = [value for value in present if not (isinstance(value, float) and np.isnan(value))]
    known = {name: bool(numbers) and draw(st.booleans()) for name in ("minimum", "maximum")}
    return {
        "minimum": min(numbers) if known["minimum"] else None,
        "maximum": max(numbers) if known["maximum"] else None,
        "nulls": draw(st.sampled_from([rows - len(present), -1])),
        "may_be_nan": is_float and (len(numbers) < len(present) or draw(st.booleans())),
    }


def collected(of_groups: list[dict[str, Any]]) -> ColumnStatistics:
    def bounds(name: str) -> tuple[Any, Any]:
        values = np.empty(len(of_groups), dtype=object)
        values[:] = [group[name] for group in of_groups]
        return values, np.array([group[name] is not None for group in of_groups], dtype=np.bool_)

    (minimum, has_minimum), (maximum, has_maximum) = bounds("minimum"), bounds("maximum")
    nulls = np.array([group["nulls"] for group in of_groups], dtype=np.int64)
    may_be_nan = np.array([group["may_be_nan"] for group in of_groups], dtype=np.bool_)
    return ColumnStatistics(minimum, maximum, has_minimum, has_maximum, nulls, may_be_nan)


@given(st.data(), filtered_rows(max_rows=12))
@settings(max_examples=examples(200))
def test_pruning_by_statistics_agrees_with_each_row(data: st.DataObject, drawn: FilteredRows) -> None:
    total = len(drawn.kept)
    borders = sorted(data.draw(st.lists(st.integers(0, total), max_size=4)))
    slices = [slice(*pair) for pair in zip([0, *borders], [*borders, total], strict=True)]
    rows = np.array([part.stop - part.start for part in slices])
    statistics = {}
    for field in drawn.fields:
        if data.draw(st.booleans()):
            parts = [list(drawn.columns[field.name][part]) for part in slices]
            is_float = field.dtype.kind == "f"
            of_groups = [data.draw(statistics_of(part, len(part), is_float=is_float)) for part in parts]
            statistics[field.name] = collected(of_groups)
    bound = bind(drawn.expression, {field.name: field for field in drawn.fields}, among="the test")
    verdict = prune(bound, statistics, rows)
    assert not (verdict.none & verdict.all).any()
    for part, none, all_ in zip(slices, verdict.none.tolist(), verdict.all.tolist(), strict=True):
        assert not none or not any(drawn.kept[part])
        assert not all_ or all(drawn.kept[part])


def known(minimum: Any, maximum: Any, nulls: Any = 0, *, nan: bool = False) -> ColumnStatistics:
    """Return statistics of row groups as typed arrays; None is a missing bound."""
    has_minimum = np.array([bound is not None for bound in minimum])
    has_maximum = np.array([bound is not None for bound in maximum])
    values = [bound for bound in (*minimum, *maximum) if bound is not None]
    dtype = np.dtype(object) if isinstance(values[0], (bytes, Decimal)) else np.array(values).dtype
    low, high = (np.zeros(len(minimum), dtype) for _ in range(2))
    low[has_minimum] = [bound for bound in minimum if bound is not None] or 0
    high[has_maximum] = [bound for bound in maximum if bound is not None] or 0
    counts = np.full(len(minimum), nulls)
    return ColumnStatistics(low, high, has_minimum, has_maximum, counts, np.full(len(minimum), nan))


def verdict_of(expression: Expression, dtype: Any, statistics: ColumnStatistics, rows: int = 10) -> str:
    """Return `-` for dropped, `+` for kept whole, `?` for undecided, for each row group."""
    fields = {"x": UnischemaField("x", dtype, nullable=True)}
    verdict: Verdict = prune(
        bind(expression, fields, among="the test"), {"x": statistics}, np.full(len(statistics.nulls), rows)
    )
    marks = np.where(verdict.none, "-", np.where(verdict.all, "+", "?"))
    return "".join(marks.tolist())


@pytest.mark.parametrize(
    ("expression", "verdicts"),
    [
        (col("x") < 5, "+?--"),
        (col("x") <= 5, "+?--"),
        (col("x") > 5, "-?++"),
        (col("x") >= 6, "-?++"),
        (col("x") == 12, "--?+"),
        (col("x") != 12, "++?-"),
        (col("x").isin([2, 12]), "?-?+"),
        (~col("x").isin([2, 12]), "?+?-"),
        (col("x").isin([]), "----"),
        (col("x").is_null(), "----"),
        (col("x").is_valid(), "++++"),
        (col("x") == 4.5, "----"),
        (col("x") < 10**30, "++++"),
        ((col("x") > 3) & (col("x") < 11), "-+?-"),
        ((col("x") < 4) | (col("x") > 11), "+-?+"),
    ],
    ids=repr,
)
def test_statistics_prune_or_select_row_groups_when_possible(expression: Expression, verdicts: str) -> None:
    assert verdict_of(expression, "int32", known([1, 4, 10, 12], [3, 8, 12, 12])) == verdicts


def test_row_group_that_may_have_nulls_is_not_selected_as_a_whole() -> None:
    assert verdict_of(col("x") > 0, "int32", known([1], [3], nulls=0)) == "+"
    assert verdict_of(col("x") > 0, "int32", known([1], [3], nulls=1)) == "?"
    assert verdict_of(col("x") > 0, "int32", known([1], [3], nulls=-1)) == "?"
    assert verdict_of((col("x") > 0) | col("x").is_null(), "int32", known([1], [3], nulls=1)) == "?"


def test_row_group_of_nulls_is_pruned() -> None:
    nothing = known([None, 0], [None, 0], nulls=10)
    for expression, verdict in [(col("x") > 0, "-"), (~(col("x") > 0), "-"), (col("x").is_null(), "+")]:
        assert verdict_of(expression, "int32", nothing)[0] == verdict


def test_row_group_that_may_have_nan_is_not_selected_as_a_whole() -> None:
    assert verdict_of(col("x") < 5.0, "float64", known([1.0], [3.0], nan=True)) == "?"
    assert verdict_of(col("x") < 5.0, "float64", known([1.0], [3.0], nan=False)) == "+"
    assert verdict_of(col("x") > 5.0, "float64", known([1.0], [3.0], nan=True)) == "-"
    # NaN differs from every value, so != matches NaN, too
    assert verdict_of(col("x") != 5.0, "float64", known([1.0], [3.0], nan=True)) == "+"


def test_statistics_treat_signed_zeros_as_equal() -> None:
    assert verdict_of(col("x") == -0.0, "float64", known([0.0], [0.0])) == "+"
    assert verdict_of(col("x") < 0.0, "float64", known([-0.0], [0.0])) == "-"


def test_truncated_statistics_prune_as_bounds() -> None:
    """Writers may truncate longer values to common prefixes, here `ab` and `ac`."""
    cut = known([b"ab"], [b"ac"])
    for expression, verdict in [
        (col("x") == "ab", "?"),
        (col("x") == "abz", "?"),
        (col("x") == "aa", "-"),
        (col("x") == "ad", "-"),
        (col("x") < "ac", "?"),
        (col("x") <= "ac", "+"),
        (col("x") >= "ab", "+"),
    ]:
        assert verdict_of(expression, "str", cut) == verdict, expression


def test_statistics_keep_trailing_zero_bytes() -> None:
    assert verdict_of(col("x") == "a\x00", "str", known([b"a"], [b"a"])) == "-"
    assert verdict_of(col("x").isin(["a\x00"]), "str", known([b"a\x00"], [b"a\x00"])) == "+"


def test_statistics_order_large_unsigned_numbers() -> None:
    largest = ColumnStatistics(
        *(np.array([2**64 - 2], np.uint64), np.array([2**64 - 1], np.uint64)),
        *(np.array([True]), np.array([True]), np.array([0]), np.array([False])),
    )
    assert verdict_of(col("x") > 2**63, "uint64", largest) == "+"
    assert verdict_of(col("x") == -1, "uint64", largest) == "-"


@pytest.mark.parametrize("unknown", ["minimum", "maximum"])
def test_minimum_or_maximum_alone_prunes_on_its_side(unknown: str) -> None:
    statistics = known([None, 1], [3, 3]) if unknown == "minimum" else known([1, 1], [None, 3])
    low, high = (verdict_of(expression, "int32", statistics)[0] for expression in (col("x") < 1, col("x") > 3))
    assert (low, high) == (("?", "-") if unknown == "minimum" else ("-", "?"))


def test_missing_statistics_keep_row_groups_undecided() -> None:
    fields = {"x": UnischemaField("x", "int8", nullable=True)}
    rows = np.array([3, 0])
    for expression, none in [(col("x") == 5, [False, True]), (col("x") == 1.5, [True, True])]:
        assert prune(bind(expression, fields, among="x"), {}, rows).none.tolist() == none


def test_pruning_handles_a_million_row_groups() -> None:
    groups = 1_000_000
    low = np.arange(groups, dtype=np.int64) * 10
    flags = np.ones(groups, np.bool_)
    statistics = ColumnStatistics(low, low + 9, flags, flags, np.zeros(groups, np.int64), ~flags)
    fields = {"x": UnischemaField("x", "int64")}
    verdict = prune(
        bind((col("x") >= 55) & (col("x") < 10**6), fields, among="x"), {"x": statistics}, np.full(groups, 10)
    )
    assert verdict.undecided.tolist() == [5]
    assert (int(verdict.all.sum()), int(verdict.none.sum())) == (10**5 - 6, groups - 10**5 + 5)


def test_statistics_of_dates_and_decimals_prune() -> None:
    day = (dt.date(2026, 1, 31) - dt.date(1970, 1, 1)).days
    after: Callable[[int], Expression] = lambda hour: col("x") > dt.datetime(2026, 1, 31, hour)  # noqa: DTZ001, E731
    assert verdict_of(after(0), "datetime64[D]", known([day, day + 1], [day, day + 2])) == "-+"
    assert verdict_of(after(12), "datetime64[D]", known([day, day + 1], [day, day + 2])) == "-+"
    prices = known([Decimal("1.25")], [Decimal("1.30")])
    assert verdict_of(col("x") < Decimal("1.301"), Decimal, prices) == "+"
    assert verdict_of(col("x") == 1, Decimal, prices) == "-"
