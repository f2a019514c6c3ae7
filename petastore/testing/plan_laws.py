"""Laws that every plan keeps, for Hypothesis: no IO and no mocks.

`inventories()` and `orders()` draw uneven datasets and orders; `epoch_batches` walks one rank of a plan. A test calls
the laws with what it drew.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from petastore.inventory import Inventory
from petastore.plan.plan import Plan
from petastore.plan.request import Order, ReadRequest, Shard, Tail

__all__ = [
    "check_equal_steps",
    "check_every_row_once",
    "check_global_batches_ignore_ranks",
    "check_row_groups_at_hand",
    "inventories",
    "orders",
    "walk",
]


@st.composite
def inventories(draw: Any, *, max_groups: int = 40, max_rows: int = 60) -> Inventory:
    """Datasets of 1 to `max_groups` row groups of 0 to `max_rows` rows, in one file."""
    return Inventory.of_rows(draw(st.lists(st.integers(0, max_rows), min_size=1, max_size=max_groups)))


@st.composite
def orders(draw: Any) -> Order:
    """Orders of every kind, with any seed."""
    return Order(
        seed=draw(st.integers(-(2**70), 2**70)),
        shuffle_row_groups=draw(st.booleans()),
        shuffle_rows=draw(st.booleans()),
        lanes=draw(st.sampled_from([1, 2, 3, 6, 12, 48])),
        block_rows=draw(st.integers(1, 200)),
    )


@dataclasses.dataclass(frozen=True)
class Walked:
    """One rank's batches: the numbers of their rows in the dataset, and which are no repeats."""

    rows: NDArray[np.int64]
    valid: NDArray[np.bool_]


def walk(plan: Plan, batch_size: int, *, rows_per_span: int = 64) -> list[Walked]:
    """All batches of one rank, through all epochs; rows are numbered through the dataset in file order."""
    starts = np.cumsum(plan.inventory.rows) - plan.inventory.rows
    batches = []
    for span in plan.spans(batch_size, rows_per_span=rows_per_span):
        rows = starts[span.groups] + span.rows
        valid = np.ones(len(rows), dtype=np.bool_) if span.valid is None else span.valid
        for first, stop in zip(span.offsets[:-1].tolist(), span.offsets[1:].tolist(), strict=True):
            batches.append(Walked(rows[first:stop], valid[first:stop]))
    return batches


def ranks_of(inventory: Inventory, order: Order, *, ranks: int, tail: Tail, epochs: int = 1) -> list[Plan]:
    """The plans of all ranks of one training."""
    return [Plan(inventory, ReadRequest(("id",), order, Shard(rank, ranks), epochs, tail)) for rank in range(ranks)]


def check_equal_steps(plans: list[Plan], batch_size: int) -> None:
    """Every rank gets as many batches as `steps_per_epoch` says, none of them empty, and rows as `rows_per_epoch`."""
    for plan in plans:
        batches = walk(plan, batch_size)
        epochs = plan.request.epochs or 0
        assert len(batches) == epochs * plans[0].steps_per_epoch(batch_size)
        assert sum(len(batch.rows) for batch in batches) == epochs * plan.rows_per_epoch(batch_size)
        assert all(len(batch.rows) for batch in batches)


def check_every_row_once(plans: list[Plan], batch_size: int) -> None:
    """Over all ranks and each epoch: `even` and `pad` give each row once, `drop` at most once, `wrap` at least once."""
    walked = [walk(plan, batch_size) for plan in plans]
    steps = plans[0].steps_per_epoch(batch_size)
    tail, total = plans[0].request.tail, plans[0].num_rows
    for epoch in range(plans[0].request.epochs or 0):
        mine = [batch for batches in walked for batch in batches[epoch * steps : (epoch + 1) * steps]]
        seen = collections.Counter(row for batch in mine for row in batch.rows[batch.valid].tolist())
        if tail in (Tail.EVEN, Tail.PAD):
            assert seen == collections.Counter(range(total))
        elif tail is Tail.DROP:
            assert set(seen.values()) <= {1}
            assert total - len(seen) < batch_size * len(plans)
        else:
            assert set(seen) == set(range(total))
            assert sum(seen.values()) - total < batch_size * len(plans)


def check_global_batches_ignore_ranks(
    inventory: Inventory, order: Order, *, global_batch: int, tail: Tail, ranks: list[int]
) -> None:
    """The same global batches, as multisets, for every number of ranks that divides the global batch."""
    wanted: list[Any] | None = None
    for count in ranks:
        if global_batch % count or (tail is Tail.EVEN and 0 < inventory.num_rows < count):
            continue
        walked = [walk(plan, global_batch // count) for plan in ranks_of(inventory, order, ranks=count, tail=tail)]
        found = [
            sorted(np.concatenate([batch.rows[batch.valid] for batch in step]).tolist())
            for step in zip(*walked, strict=True)
        ]
        if tail is Tail.EVEN:
            # Fewer rows than ranks join the batch before, which is a matter of how many ranks there are.
            left = inventory.num_rows % global_batch
            if 0 < left < count:
                continue
        wanted = found if wanted is None else wanted
        assert found == wanted, f"{count} ranks"


def check_row_groups_at_hand(plan: Plan, batch_size: int) -> None:
    """A span finds every row group that it needs: fetched for it or before, and not released yet; nothing is kept."""
    at_hand: set[int] = set()
    for span in plan.spans(batch_size, rows_per_span=64):
        assert not at_hand & set(span.fetch)
        at_hand |= set(span.fetch)
        assert set(span.needed.tolist()) == set(span.groups.tolist())
        assert set(span.needed.tolist()) <= at_hand
        assert (span.rows < plan.inventory.rows[span.groups]).all()
        at_hand -= set(span.release)
    assert not at_hand
