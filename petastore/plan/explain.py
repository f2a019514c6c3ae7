"""What a plan will cost and how well it mixes, before a byte is read. Pure."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.plan.order import EpochOrder
from petastore.plan.plan import Plan
from petastore.plan.request import Shard, Tail
from petastore.plan.tail import EpochBatches, lanes_of

__all__ = ["Explanation", "explain"]

_LABELS = 100
"""Classes of the imagined dataset on which mixing is predicted: equally many rows each, sorted by class."""

_SAMPLED_BATCHES = 64


@dataclasses.dataclass(frozen=True)
class Explanation:
    """The first epoch of a plan in figures; `str` of it is for people, `as_dict` for programs."""

    row_groups: int
    """Row groups of the dataset."""

    row_groups_kept: int
    """Row groups of which at least one row is meant."""

    rows: int
    """Rows of an epoch over all ranks."""

    ranks: int
    """Ranks that share an epoch."""

    batch_size: int
    """Rows of a full batch of one rank."""

    steps: int
    """Batches of an epoch on each rank."""

    rows_per_rank: tuple[int, int]
    """Fewest and most rows that a rank gets, repeats included."""

    tail: str
    """What becomes of the last global batch."""

    lanes: int
    """Row groups that are read side by side, over all ranks."""

    block_rows: int
    """Rows of a lane that are permuted together; 1 where rows are not shuffled."""

    reads_per_row_group: float
    """How often a row group is read, over all ranks; 1 is ideal."""

    bytes_to_fetch: int
    """Stored bytes of the row groups that all ranks together read."""

    rows_resident: int
    """Rows of row groups that this rank keeps at hand at most."""

    bytes_resident: int
    """Bytes of these rows once their pages are decompressed, all columns; cells stay encoded."""

    mixing: float
    """Total variation between the labels of a global batch and those of the dataset, were it sorted by label: near 1,
    batches hold one label; as low as `mixing_uniform`, they are drawn as from an urn."""

    mixing_uniform: float
    """What a uniform shuffle of the whole dataset would give."""

    seed: int
    """The seed, also where it was drawn."""

    def as_dict(self) -> dict[str, Any]:
        """The same as a new dict of JSON values."""
        return dataclasses.asdict(self) | {"rows_per_rank": list(self.rows_per_rank)}

    def __str__(self) -> str:
        fewest, most = self.rows_per_rank
        share = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
        pruned = self.row_groups - self.row_groups_kept
        kept = f"{self.row_groups_kept:,} of {self.row_groups:,} row groups, {self.rows:,} rows"
        batches = f"{self.steps:,} batch{'' if self.steps == 1 else 'es'} of {self.batch_size:,} rows"
        blocks = f"blocks of {self.block_rows:,} row{_s(self.block_rows)}"
        lines = [
            kept + (f" ({pruned:,} row groups hold no row that is meant)" if pruned else ""),
            f"{self.ranks:,} rank{_s(self.ranks)} × {batches}, {share} rows a rank; tail {self.tail!r}",
            f"{self.lanes:,} lane{_s(self.lanes)}, {blocks}, seed {self.seed}",
            f"reads: {self.reads_per_row_group:.2f} × each row group, {_size(self.bytes_to_fetch)} in all",
            f"at hand on this rank: at most {self.rows_resident:,} rows, {_size(self.bytes_resident)}",
            f"mixing: {self.mixing:.2f} (uniform {self.mixing_uniform:.2f}, none 0.99)",
        ]
        return "\n".join(lines)


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"


def explain(plan: Plan, batch_size: int) -> Explanation:
    """What a plan costs and how well it mixes, with batches of this many rows a rank.

    The reads are those of full batches; the last batch of an epoch may read a few row groups more.

    Raises:
        NoDataAvailableError: `tail="even"` with fewer rows than ranks.

    Example:
        >>> from petastore.inventory import Inventory
        >>> from petastore.plan.request import Order, ReadRequest
        >>> order = Order(seed=7, shuffle_row_groups=True, shuffle_rows=True, lanes=48, block_rows=2000)
        >>> plan = Plan(Inventory.of_rows([1000] * 1000), ReadRequest(("id",), order, Shard(0, 2)))
        >>> print(explain(plan, 128))
        1,000 of 1,000 row groups, 1,000,000 rows
        2 ranks × 3,907 batches of 128 rows, 500,000 rows a rank; tail 'even'
        48 lanes, blocks of 2,000 rows, seed 7
        reads: 1.00 × each row group, 7.6 MiB in all
        at hand on this rank: at most 54,000 rows, 421.9 KiB
        mixing: 0.38 (uniform 0.25, none 0.99)
    """
    request, order = plan.request, EpochOrder(plan.rows, plan.request.order, 0)
    steps = plan.steps_per_epoch(batch_size)
    ranks = [Shard(rank, request.shard.count) for rank in range(request.shard.count)]
    shares = [plan.for_shard(rank).rows_per_epoch(batch_size) for rank in ranks]
    pieces = order.pieces()
    readers = _readers(pieces.groups, pieces.lanes, lanes=order.lanes, ranks=request.shard.count, plan=plan)
    resident_rows, resident_bytes = _resident(plan, order)
    return Explanation(
        row_groups=plan.inventory.num_row_groups,
        row_groups_kept=int((plan.rows > 0).sum()),
        rows=plan.num_rows,
        ranks=request.shard.count,
        batch_size=batch_size,
        steps=steps,
        rows_per_rank=(min(shares), max(shares)),
        tail=request.tail.value,
        lanes=order.lanes,
        block_rows=request.order.block_rows if request.order.shuffle_rows else 1,
        reads_per_row_group=float(readers.sum() / max((plan.rows > 0).sum(), 1)),
        bytes_to_fetch=int((readers * plan.inventory.stored_bytes).sum()),
        rows_resident=resident_rows,
        bytes_resident=resident_bytes,
        mixing=_mixing(plan, order, batch_size * request.shard.count),
        mixing_uniform=_uniform_mixing(batch_size * request.shard.count),
        seed=request.order.seed,
    )


def _readers(
    groups: NDArray[np.int64], piece_lanes: NDArray[np.int64], *, lanes: int, ranks: int, plan: Plan
) -> NDArray[np.int64]:
    """How many ranks read each row group, shape (groups,)."""
    # first_rank, last_rank: (pieces,) ranks with slots in the lane of each piece
    first_rank = piece_lanes * ranks // lanes
    last_rank = -(-(piece_lanes + 1) * ranks // lanes) - 1
    # A row group's pieces lie in neighbouring lanes, so its ranks are a run without gaps.
    lowest = np.full(plan.inventory.num_row_groups, ranks, dtype=np.int64)
    highest = np.full(plan.inventory.num_row_groups, -1, dtype=np.int64)
    np.minimum.at(lowest, groups, first_rank)
    np.maximum.at(highest, groups, last_rank)
    return np.maximum(highest - lowest + 1, 0)


def _resident(plan: Plan, order: EpochOrder) -> tuple[int, int]:
    """Most rows and bytes of row groups that this rank keeps at a time."""
    pieces = order.pieces()
    mine = np.isin(pieces.lanes, np.array(lanes_of(plan.request.shard, order.lanes)))
    groups, where = np.unique(pieces.groups[mine], return_inverse=True)
    first = np.full(len(groups), np.iinfo(np.int64).max)
    last = np.full(len(groups), -1, dtype=np.int64)
    np.minimum.at(first, where, pieces.first_positions[mine])
    np.maximum.at(last, where, pieces.last_positions[mine])
    return (
        _peak(first, last, plan.inventory.rows[groups]),
        _peak(first, last, plan.inventory.decoded_bytes[groups]),
    )


def _peak(first: NDArray[np.int64], last: NDArray[np.int64], weight: NDArray[np.int64]) -> int:
    """The largest sum of weights that are held at a time, each from `first` to `last`."""
    if len(first) == 0:
        return 0
    # events: (2 · groups,) what comes before what goes at the same position
    places = np.concatenate([first, last])
    changes = np.concatenate([weight, -weight])
    events = np.lexsort((np.repeat([0, 1], len(first)), places))
    return int(np.cumsum(changes[events]).max())


def _mixing(plan: Plan, order: EpochOrder, global_batch: int) -> float:
    """Mean total variation of labels over some global batches, were the dataset sorted by label."""
    batches = EpochBatches(plan.num_rows, global_batch, 1, order.lanes, Tail.DROP)
    if batches.steps == 0:
        return 0.0
    starts = np.cumsum(plan.rows) - plan.rows
    picked = np.unique(np.linspace(0, batches.steps - 1, _SAMPLED_BATCHES).astype(np.int64))
    variations = []
    for step in picked.tolist():
        groups, rows = order.rows_at(batches.share(Shard(), step, step + 1).positions)
        labels = (starts[groups] + rows) * _LABELS // plan.num_rows
        shares = np.bincount(labels, minlength=_LABELS) / global_batch
        variations.append(np.abs(shares - 1 / _LABELS).sum() / 2)
    return float(np.mean(variations))


def _uniform_mixing(global_batch: int) -> float:
    """What drawing from an urn gives: the mean absolute deviation of a binomial, by the normal distribution."""
    share = 1 / _LABELS
    return float(_LABELS / 2 * np.sqrt(2 * share * (1 - share) / (np.pi * global_batch)))
