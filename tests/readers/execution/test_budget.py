"""Tests of the memory budget: prefetching shrinks to fit, and a too small budget raises with the required size."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from petastore.errors import InvalidArgumentError
from petastore.inventory import Inventory
from petastore.plan import Order, Plan, ReadRequest, Shard
from petastore.readers.execution import memory_budget
from petastore.readers.execution.memory_budget import Budget

SIZES = st.integers(1, 10**6)
MB = 10**6


def takes(row: int, permuted: int = 0, work: int = 0, plan_row: int = 0, footers: int = 0, free: int = 0) -> Any:
    """Return a stand-in for a footprint with these sizes per row."""
    return SimpleNamespace(
        row_bytes=row,
        permuted_row_bytes=permuted,
        work_bytes=work,
        plan_row_bytes=plan_row,
        footer_bytes=footers,
        free_row_bytes=free,
        value_row_bytes=free,
        decodes_values=False,
        streamed_bytes=0,
    )


def fitted(
    of_rows: Any, resident_bytes: Any, *, limit: int | None, shuffles_rows: bool = False, **sizes: Any
) -> Budget:
    """Return the settings that fit into a limit; raise if the limit is too small."""
    budget = memory_budget.fitted(of_rows, resident_bytes, limit=limit, **sizes)
    of_error = {"batch_size": sizes["batch_size"], "workers": sizes["workers"], "shuffles_rows": shuffles_rows}
    memory_budget.check_enough(budget, limit, budget.total_bytes, **of_error)
    return budget


@given(SIZES, SIZES, st.integers(0, 10**7))
def test_memory_budget_named_in_the_error_is_exactly_enough(row: int, work: int, footers: int) -> None:
    sizes: dict[str, Any] = {"batch_size": 10, "rows_per_span": 100, "workers": 2}
    of_rows = takes(row, work=work, footers=footers)
    with pytest.raises(InvalidArgumentError) as refused:
        fitted(of_rows, lambda _: MB, limit=100, **sizes)
    (least,) = re.findall(r"must be at least ([\d,]+)", str(refused.value))
    limit = int(least.replace(",", ""))
    assert fitted(of_rows, lambda _: MB, limit=limit, **sizes).total_bytes <= limit
    with pytest.raises(InvalidArgumentError, match=f"at least {least} "):
        fitted(of_rows, lambda _: MB, limit=limit - 1, **sizes)


def budget_within(limit: int, **sizes: Any) -> Budget:
    return fitted(takes(1000), lambda _: MB, limit=limit, **sizes)


@given(SIZES, SIZES, st.integers(0, 10**6), st.integers(1, 10**5), st.integers(1, 10**5), st.integers(0, 16), SIZES)
def test_memory_budget_is_kept_or_raises_if_it_is_too_small(
    row: int, permuted: int, work: int, batch: int, rows: int, workers: int, limit: int
) -> None:
    needs = takes(row, permuted, work, 40, footers=work)
    sizes: Any = {"batch_size": batch, "rows_per_span": rows, "workers": workers, "prefetched_bytes": 10**8}
    free = fitted(needs, lambda early: 1000 + early, limit=None, **sizes)
    assert (free.rows_per_span, free.ahead) == (max(rows, batch), workers + 1)
    try:
        budget = fitted(needs, lambda early: 1000 + early, limit=limit, **sizes)
    except InvalidArgumentError:
        least = fitted(needs, lambda early: 1000 + early, limit=None, **(sizes | {"rows_per_span": 1, "workers": 0}))
        assert limit < (least.total_bytes - least.prefetched_bytes) * (workers + 2)
    else:
        assert budget.total_bytes <= limit
        assert budget.rows_per_span >= batch
        assert 1 <= budget.ahead <= workers + 1
        assert budget.total_bytes <= free.total_bytes
        assert 0 <= budget.prefetched_bytes <= 10**8


def test_prefetching_uses_the_remaining_memory_budget() -> None:
    sizes: Any = {"batch_size": 100, "rows_per_span": 10_000, "workers": 2, "prefetched_bytes": 256 * MB}
    prefetched = [budget_within(limit * MB, **sizes).prefetched_bytes // MB for limit in (60, 100, 1000)]
    assert prefetched == [0, 32, 256]
    free = fitted(takes(1000, free=500), lambda _: MB, limit=100 * MB, **sizes)
    assert free.prefetched_bytes // MB == 8  # the rest is for values of unknown size
    assert fitted(takes(1000), lambda _: MB, limit=None, **sizes).prefetched_bytes == 256 * MB


def test_footers_take_an_eighth_of_a_budget_at_most() -> None:
    sizes: Any = {"batch_size": 100, "rows_per_span": 100, "workers": 2}
    found = [
        fitted(takes(10, footers=MB), lambda _: 0, limit=limit, **sizes).work_bytes for limit in (None, MB, 10 * MB)
    ]
    assert found == [MB, MB // 8, MB]


def test_memory_budget_error_gives_the_required_size_and_advice() -> None:
    with pytest.raises(
        InvalidArgumentError,
        match=r"memory_budget must be at least 5,200 .* got 100: row groups take 5,000 bytes, .* of fewer rows",
    ):
        fitted(takes(10), lambda _: 5000, batch_size=8, rows_per_span=64, workers=2, limit=100)


@pytest.mark.parametrize(
    ("row", "work", "at_hand", "options", "advice"),
    [
        (10, 0, 9000, {"shuffles_rows": True}, "shuffle_buffer_bytes"),
        (10**4, 0, 9000, {"shuffles_rows": True}, "smaller batches"),
        (10, 10**4, 9000, {}, "fewer workers"),
        (10, 10**4, 9000, {"workers": 1}, "row groups of fewer rows"),
    ],
)
def test_memory_budget_error_advises_on_the_largest_consumer(
    row: int, work: int, at_hand: int, options: dict[str, Any], advice: str
) -> None:
    sizes: Any = {"batch_size": 8, "rows_per_span": 64, "workers": 2, "limit": 100, **options}
    with pytest.raises(InvalidArgumentError, match=f"; or .*{advice}.*; or read fewer columns"):
        fitted(takes(row, work=work), lambda _: at_hand, **sizes)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=30), st.integers(0, 99), st.sampled_from([1, 3, 6]))
def test_row_groups_in_memory_never_exceed_the_estimate(rows: list[int], seed: int, lanes: int) -> None:
    order = Order(seed=seed, shuffle_row_groups=True, shuffle_rows=True, lanes=lanes, block_rows=30)
    assume(sum(rows) >= 2)
    for rank in range(2):
        plan = Plan(Inventory.of_rows(rows), ReadRequest(("id",), order, Shard(rank, 2)))
        foretold = plan.resident_bytes(np.array(rows), early=2 * 8)
        at_hand: set[int] = set()
        for span in plan.spans(4, rows_per_span=8):
            at_hand |= set(span.fetch)
            if not span.ends_epoch:  # the last batch may have rows of other ranks' lanes
                assert sum(rows[group] for group in at_hand) <= foretold
            at_hand -= set(span.release)
