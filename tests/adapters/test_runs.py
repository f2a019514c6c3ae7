"""Runs of batches, and where each batch that was handed over ends."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.adapters.runs import Handed, runs_of
from petastore.decoding.decode import Decoded
from petastore.errors import RequestError
from petastore.plan.cursor import Cursor
from petastore.readers.batch import Batch, Columns

SPANS = st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=6), max_size=5)


def batches_of(spans: list[list[int]]) -> Iterator[Batch]:
    """Batches of these sizes; rows count on."""
    begin = 0
    for sizes in spans:
        borders = np.cumsum([0, *sizes])
        columns = Columns({"id": Decoded(begin + np.arange(borders[-1]), None)})
        for first, stop in itertools.pairwise(borders.tolist()):
            yield Batch(columns, first, stop, Cursor(0, int(begin + stop)))
        begin += borders[-1]


@given(spans=SPANS, most=st.integers(1, 5))
def test_runs_hold_every_batch_once_in_order_and_with_its_rows(spans: list[list[int]], most: int) -> None:
    runs = list(runs_of(batches_of(spans), most=most))
    singles = [single for run in runs for single in run.single()]
    assert [single.sizes[0] for single in singles] == [size for sizes in spans for size in sizes]
    assert [single.column("id").tolist() for single in singles] == [b["id"].tolist() for b in batches_of(spans)]
    for run in runs:
        assert 1 <= len(run.sizes) <= most
        assert 0 not in run.sizes or len(run.sizes) == 1
        assert len(run.column("id")) == sum(run.sizes)


def test_nothing_is_asked_for_that_the_run_does_not_need() -> None:
    asked = 0

    def counted() -> Iterator[Batch]:
        nonlocal asked
        for batch in batches_of([[2], [3, 3], [1]]):
            asked += 1
            yield batch

    runs = runs_of(counted(), most=10)
    assert [(next(runs).sizes, asked) for _ in range(3)] == [((2,), 1), ((3, 3), 3), ((1,), 4)]


def test_a_place_is_known_for_each_batch_that_was_handed_over_in_the_newest_pass() -> None:
    handed = Handed()
    for _ in range(2):
        assert len(list(handed.noted(batches_of([[2, 3], [4]])))) == 3
        assert [handed.cursor_after(number).position for number in (1, 2, 3)] == [2, 5, 9]
        for number in (0, 4):
            with pytest.raises(RequestError, match=rf"after {number} batches was asked for.*are known: 1 to 3"):
                handed.cursor_after(number)


def test_before_any_batch_no_place_is_known() -> None:
    with pytest.raises(RequestError, match="are known: none"):
        Handed().cursor_after(1)


def test_only_the_last_batches_are_remembered() -> None:
    handed = Handed()
    columns = Columns({})
    many = (Batch(columns, 0, 0, Cursor(0, step)) for step in range(1, 70_001))
    assert sum(1 for _ in handed.noted(many)) == 70_000
    assert handed.cursor_after(70_000 - 65_535).position == 70_000 - 65_535
    with pytest.raises(RequestError, match=r"known: 4,465 to 70,000"):
        handed.cursor_after(4_464)
