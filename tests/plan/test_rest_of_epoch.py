"""Tests of rows excluded mid-epoch: each other row is read exactly once, with equal steps on all ranks."""

from __future__ import annotations

import collections
import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.errors import InvalidArgumentError
from petastore.inventory import Inventory
from petastore.plan import Cursor, Order, Plan, ReadRequest, Selection, Shard
from petastore.plan.batches.spans import Span
from petastore.plan.request import LastBatch
from petastore.plan.state import dump_state, resharded, resume

Places = list[tuple[int, int]]


def plan_of(
    rows: list[int], selection: Selection | None, shard: Shard, order: Order, last_batch: LastBatch, epochs: int = 2
) -> Plan:
    request = ReadRequest(("id",), order, shard, epochs, last_batch, frozenset({"dealt_to"}))
    return Plan(Inventory.of_rows(rows), request, selection)


def batches_of(plan: Plan, size: int, after: Cursor) -> list[tuple[Places, Cursor]]:
    """The valid rows of each batch of a rank, and the cursor after it."""
    found = []
    span: Span
    for span in plan.spans(size, rows_per_span=4 * size, after=after):
        for batch in range(span.num_batches):
            first, stop = span.offsets[batch : batch + 2].tolist()
            valid = np.ones(stop - first, bool) if span.valid is None else span.valid[first:stop]
            places = zip(span.groups[first:stop][valid].tolist(), span.rows[first:stop][valid].tolist(), strict=True)
            found.append((list(places), span.cursor_after(batch)))
    return found


def without(rows: list[int], excluded: set[tuple[int, int]], selection: Selection | None = None) -> Selection:
    flags = {group: np.zeros(rows[group], bool) for group in range(len(rows))}
    for group, row in excluded:
        flags[group][row] = True
    whole = Selection(np.array(rows), {}) if selection is None else selection
    return whole.without(flags, np.array(rows), by="excluded rows")


@given(data=st.data())
def test_each_row_is_read_once_when_bad_rows_are_excluded_mid_epoch(data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(1, 12), min_size=2, max_size=8), label="rows")
    places = [(group, row) for group, count in enumerate(rows) for row in range(count)]
    excluded = data.draw(st.sets(st.sampled_from(places), max_size=len(places) // 2), label="excluded")
    ranks, later, latest = (data.draw(st.integers(1, 3), label="ranks") for _ in range(3))
    size, later_size = data.draw(st.integers(1, 3), label="size"), data.draw(st.integers(1, 3), label="later size")
    last_batch = data.draw(st.sampled_from([LastBatch.EVEN, LastBatch.PAD]), label="last_batch")
    shuffled = data.draw(st.booleans(), label="shuffle_rows")
    lanes = data.draw(st.sampled_from([1, 2, 6]), label="lanes")
    order = Order(seed=3, shuffle_row_groups=True, shuffle_rows=shuffled, lanes=lanes, block_rows=2)
    good = without(rows, excluded) if excluded else None
    if len(places) - len(excluded) < 3:
        return

    def taken(
        state: Any, count: int, batch_size: int, selection: Selection | None, most: int | None
    ) -> tuple[list[Places], Any]:
        of_ranks, states = [], []
        for rank in range(count):
            plan = plan_of(rows, selection, Shard(rank, count), order, last_batch)
            after = Cursor()
            if state is not None:
                plan, after = resume(plan, json.loads(json.dumps(state)))
            batches = batches_of(plan, batch_size, after)
            assert plan.steps_left(batch_size, after) == len(batches)
            part = batches[:most]
            of_ranks.append([row for batch, _ in part for row in batch])
            states.append((len(part), dump_state(plan, part[-1][1] if part else after)))
        assert all(state == states[0] for state in states)
        return of_ranks, states[0][1]

    whole_steps = plan_of(rows, None, Shard(0, ranks), order, last_batch).steps_per_epoch(size)
    first, state = taken(None, ranks, size, None, data.draw(st.integers(0, whole_steps - 1), label="steps"))
    second, state = taken(state, later, later_size, good, data.draw(st.integers(0, 3), label="more steps"))
    third, _ = taken(state, latest, size, good, None)
    early = {row for of_rank in first for row in of_rank}
    counts = collections.Counter(row for part in (first, second, third) for of_rank in part for row in of_rank)
    left = set(places) - excluded
    assert counts == collections.Counter([*left, *left, *(early & excluded)])


def test_resume_after_excluding_rows_mid_epoch_works_on_fewer_ranks() -> None:
    rows, order = [5] * 6, Order(3, True, False, lanes=2, block_rows=1, reshuffle="static", dealt_to=2)
    plan = plan_of(rows, None, Shard(0, 2), order, LastBatch.EVEN)
    state = dump_state(plan, batches_of(plan, 2, Cursor())[2][1])
    good = without(rows, {(0, 1), (3, 2), (5, 0)})
    resumed, after = resume(plan_of(rows, good, Shard(0, 2), order, LastBatch.EVEN), state)
    later = dump_state(resumed, batches_of(resumed, 2, after)[0][1])
    assert later["rest"] == {"dataset": state["dataset"], "position": 12}
    fewer = resharded(resumed, Shard(0, 1), Cursor(0, 4))
    assert isinstance(fewer, Plan)
    dealt_to_one = dataclasses.replace(order, dealt_to=1)
    one, _ = resume(plan_of(rows, good, Shard(0, 1), dealt_to_one, LastBatch.EVEN), later)
    assert batches_of(one, 3, Cursor(0, 4)) == batches_of(fewer, 3, Cursor(0, 4))
    with pytest.raises(
        InvalidArgumentError, match=r"the position in the state must be at most .*, the rows of an epoch, got 99"
    ):
        resume(plan_of(rows, good, Shard(0, 2), order, LastBatch.EVEN), later | {"position": 99})
    for other in (None, without(rows, {(0, 1)})):
        with pytest.raises(
            InvalidArgumentError,
            match="Exclude the rows that were excluded when the state was saved, or start without a state",
        ):
            resume(plan_of(rows, other, Shard(0, 2), order, LastBatch.EVEN), later)
    with pytest.raises(InvalidArgumentError, match="the state must belong to the data that is read"):
        resume(plan_of([5] * 5 + [6], without([5] * 5 + [6], {(0, 1)}), Shard(0, 2), order, LastBatch.EVEN), state)
