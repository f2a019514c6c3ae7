"""Tests of runs of batches: each batch once and in order, and no batch is read earlier than needed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from petastore.adapters.column_plans import runs_of
from petastore.decoding.decode import Decoded
from petastore.plan.cursor import Cursor
from petastore.readers.batch import Batch, Columns

SPANS = st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=6), max_size=5)


def batches_of(spans: list[list[int]]) -> Iterator[Batch]:
    """Yield batches of these sizes; row ids count up over all batches."""
    begin = 0
    for sizes in spans:
        borders = np.cumsum([0, *sizes])
        columns = Columns({"id": Decoded(begin + np.arange(borders[-1]), None)})
        for first, stop in itertools.pairwise(borders.tolist()):
            yield Batch(columns, first, stop, Cursor(0, int(begin + stop)))
        begin += borders[-1]


@given(spans=SPANS, most=st.integers(1, 5))
def test_runs_of_batches_contain_each_batch_once_in_order(spans: list[list[int]], most: int) -> None:
    runs = list(runs_of(batches_of(spans), most=most))
    singles = [single for run in runs for single in run.single()]
    assert [single.sizes[0] for single in singles] == [size for sizes in spans for size in sizes]
    assert [single.column("id").tolist() for single in singles] == [b["id"].tolist() for b in batches_of(spans)]
    for run in runs:
        assert 1 <= len(run.sizes) <= most
        assert 0 not in run.sizes or len(run.sizes) == 1
        assert len(run.column("id")) == sum(run.sizes)


def test_runs_of_batches_read_no_further_than_needed() -> None:
    asked = 0

    def counted() -> Iterator[Batch]:
        nonlocal asked
        for batch in batches_of([[2], [3, 3], [1]]):
            asked += 1
            yield batch

    runs = runs_of(counted(), most=10)
    assert [(next(runs).sizes, asked) for _ in range(3)] == [((2,), 1), ((3, 3), 3), ((1,), 4)]
