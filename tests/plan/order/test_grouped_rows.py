"""Tests of rows grouped by row group: every slice has the requested rows, also if rows are given as runs."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from petastore.plan.batches.spans import each_once
from petastore.plan.order.grouped_rows import GroupedRows, Permutation, Runs, inverse


@given(st.lists(st.integers(0, 5), min_size=0, max_size=8), st.integers(0, 2**32 - 1), st.booleans())
def test_slices_of_rows_grouped_by_row_group_have_the_requested_rows(
    sizes: list[int], seed: int, in_order: bool
) -> None:
    random, count = np.random.RandomState(seed), sum(sizes)
    groups = np.sort(random.randint(0, 4, count)).astype(np.int32)
    permutation = None if in_order else Permutation(random.permutation(count).astype(np.int64))
    whole = GroupedRows(groups, random.randint(0, 99, count).astype(np.int64), permutation)
    asked = whole.in_order()
    borders = np.cumsum([0, *sizes])
    parts = whole.cut(borders)
    for part, first, stop in zip(parts, borders[:-1], borders[1:], strict=True):
        assert [array.tolist() for array in part.in_order()] == [array[first:stop].tolist() for array in asked]
        assert part.groups.tolist() == sorted(part.groups.tolist()) or in_order


@given(st.permutations(range(9)))
def test_inverse_undoes_a_permutation(numbers: list[int]) -> None:
    permutation = np.array(numbers)
    assert permutation[inverse(permutation)].tolist() == list(range(9))


@given(
    st.lists(st.integers(0, 400), min_size=1, max_size=6),
    st.lists(st.integers(1, 60), min_size=1, max_size=9),
    st.booleans(),
)
def test_slices_of_rows_given_as_runs_have_the_requested_rows(
    sizes: list[int], weights: list[int], in_order: bool
) -> None:
    """The rows of a run are requested in their order; long slices of runs are runs, too."""
    count, random = sum(sizes), np.random.RandomState(1)
    run_of = np.sort(random.choice(len(weights), count, p=np.array(weights) / sum(weights)))
    counts = np.bincount(run_of, minlength=len(weights))
    asked_at = random.permutation(count)
    targets = np.concatenate([np.sort(asked_at[run_of == run]) for run in range(len(weights))]).astype(np.int64)
    groups = random.permutation(len(weights)).astype(np.int32)
    runs = Runs.of_file(groups, random.randint(0, 50, len(weights)), counts)
    whole = GroupedRows.of_runs(runs, None if in_order else Permutation(lambda: targets))
    written_out = GroupedRows(whole.groups, whole.rows, None if in_order else Permutation(targets))
    borders = np.cumsum([0, *sizes])
    for part, expected in zip(whole.cut(borders), written_out.cut(borders), strict=True):
        assert [array.tolist() for array in part.in_order()] == [array.tolist() for array in expected.in_order()]
        assert each_once(part).tolist() == sorted(set(expected.groups.tolist()))
        assert part.runs is not None or not in_order
        if part.runs is not None:
            in_file = Runs.of_file(part.runs.groups, part.runs.firsts, part.runs.counts)
            assert in_file.rows().tolist() == part.rows.tolist()


@given(st.integers(0, 40), st.integers(0, 99))
def test_permutation_given_as_array_or_function_has_read_only_targets(count: int, seed: int) -> None:
    targets = np.random.RandomState(seed).permutation(count).astype(np.int64)
    for permutation in (Permutation(targets.copy()), Permutation(lambda: targets.copy())):
        for _ in range(2):
            assert permutation.targets.tolist() == targets.tolist()
            assert not permutation.targets.flags.writeable


def test_slices_of_long_runs_of_rows_are_runs() -> None:
    whole = GroupedRows.of_runs(
        Runs.of_file(np.array([4, 2], np.int32), np.array([0, 7]), np.array([300, 300])),
        Permutation(np.concatenate([np.arange(0, 600, 2), np.arange(1, 600, 2)])),
    )
    first, second = whole.cut(np.array([0, 200, 600]))
    assert first.runs is not None
    assert [first.runs.groups.tolist(), first.runs.firsts.tolist(), first.runs.counts.tolist()] == [
        [4, 2],
        [0, 7],
        [100, 100],
    ]
    assert second.runs is not None
    assert second.runs.firsts.tolist() == [100, 107]


@given(st.lists(st.integers(0, 10**6), max_size=300))
def test_grouped_rows_report_each_row_group_once(groups: list[int]) -> None:
    rows = GroupedRows(np.array(groups, np.int32), np.zeros(len(groups), np.int64), None)
    assert each_once(rows).tolist() == sorted(set(groups))
    assert each_once(rows).dtype == np.int32


def test_runs_without_rows_are_dropped() -> None:
    runs = Runs.of_file(np.array([4, 2, 5], np.int32), np.array([1, 7, 3]), np.array([2, 0, 1]))
    assert runs.groups.tolist() == [4, 5]
    assert runs.rows().tolist() == [1, 2, 3]
    assert each_once(GroupedRows.of_runs(runs, None)).tolist() == [4, 5]
