"""A budget is kept by preparing less ahead, and refused where nothing is left to save."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from petastore.errors import InvalidArgumentError
from petastore.inventory import Inventory
from petastore.plan import Order, Plan, ReadRequest, Shard
from petastore.plan.batches.budget import Needs, fitted

SIZES = st.integers(1, 10**6)


@given(SIZES, SIZES, st.integers(0, 10**6), st.integers(1, 10**5), st.integers(1, 10**5), st.integers(0, 16), SIZES)
def test_what_fits_is_within_the_limit_and_what_does_not_is_refused(
    row: int, permuted: int, work: int, batch: int, rows: int, workers: int, limit: int
) -> None:
    needs = Needs(row, permuted, work, 40)
    sizes: Any = {"batch_size": batch, "rows_per_span": rows, "workers": workers}
    free = fitted(needs, lambda early: 1000 + early, limit=None, **sizes)
    assert (free.rows_per_span, free.ahead) == (max(rows, batch), workers + 1)
    try:
        budget = fitted(needs, lambda early: 1000 + early, limit=limit, **sizes)
    except InvalidArgumentError:
        least = fitted(needs, lambda early: 1000 + early, limit=None, batch_size=batch, rows_per_span=1, workers=0)
        assert limit < least.total_bytes * (workers + 2)
    else:
        assert budget.total_bytes <= limit
        assert budget.rows_per_span >= batch
        assert 1 <= budget.ahead <= workers + 1
        assert budget.total_bytes <= free.total_bytes


def test_a_refusal_says_what_is_needed_and_what_to_do() -> None:
    with pytest.raises(
        InvalidArgumentError,
        match=r"=100 bytes is less than the 5,200 bytes .* 5,000 of row groups .*5,200 or more",
    ):
        fitted(Needs(10, 0, 0), lambda _: 5000, batch_size=8, rows_per_span=64, workers=2, limit=100)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=30), st.integers(0, 99), st.sampled_from([1, 3, 6]))
def test_row_groups_at_hand_are_never_more_than_foretold(rows: list[int], seed: int, lanes: int) -> None:
    order = Order(seed=seed, shuffle_row_groups=True, shuffle_rows=True, lanes=lanes, block_rows=30)
    assume(sum(rows) >= 2)
    for rank in range(2):
        plan = Plan(Inventory.of_rows(rows), ReadRequest(("id",), order, Shard(rank, 2)))
        foretold = plan.at_hand_bytes(np.array(rows), early=2 * 8)
        at_hand: set[int] = set()
        for span in plan.spans(4, rows_per_span=8):
            at_hand |= set(span.fetch)
            if not span.ends_epoch:  # the last batch may take rows of other ranks' lanes
                assert sum(rows[group] for group in at_hand) <= foretold
            at_hand -= set(span.release)
