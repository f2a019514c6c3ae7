"""Explain a plan: its cost, memory and mixing quality, before any data is read.

Plans and mixtures call these functions with their values; the functions do not depend on the plan classes. No I/O.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.errors import InvalidArgumentError
from petastore.inventory import Inventory
from petastore.plan.batches.epoch_batches import EpochBatches, lanes_of
from petastore.plan.batches.residency import most_at_a_time, needed_from_to
from petastore.plan.order.order import EpochOrder, Pieces
from petastore.plan.report.explanation import Explanation, SourceExplanation
from petastore.plan.request import Order, ReadRequest, Shard
from petastore.plan.selection import Pruned, Selection

__all__ = ["Ranks", "checked_column_bytes", "explain_plan", "explain_source", "sampled_steps"]

_LABELS = 100
"""Number of labels in the hypothetical dataset for which mixing is predicted.

The rows of this dataset are sorted by label."""

_SAMPLED_BATCHES = 64
"""Maximum number of global batches from which mixing is computed."""


@dataclasses.dataclass(frozen=True)
class Ranks:
    """Lanes that each rank reads, and the rank whose figures are computed.

    Lanes are the sequences of row groups that an epoch interleaves.
    """

    own_lanes: Sequence[range]
    """Lanes from which each rank gets its rows; starts and ends are ascending."""

    rank: int
    """Rank whose memory and bytes are computed."""


@dataclasses.dataclass(frozen=True, eq=False)
class _Data:
    """Row groups of a dataset, their selected rows, and the bytes of selected columns."""

    inventory: Inventory
    selection: Selection | None
    column_bytes: NDArray[np.int64] | None

    @property
    def rows(self) -> NDArray[np.int64]:
        return self.inventory.rows if self.selection is None else self.selection.counts

    @property
    def fetched_bytes(self) -> NDArray[np.int64]:
        return self.inventory.stored_bytes if self.column_bytes is None else self.column_bytes


def explain_plan(
    inventory: Inventory,
    request: ReadRequest,
    selection: Selection | None,
    batches: EpochBatches,
    *,
    column_bytes: NDArray[np.int64] | None = None,
) -> Explanation:
    """Explain the cost and the mixing of a plan's first epoch, for `Plan.explain`.

    The figures are for full batches; the last batch of an epoch may read a few additional row groups.

    Args:
        inventory: Inventory of the dataset.
        request: Request of the plan.
        selection: Selected rows; None means all.
        batches: Division of the first epoch into batches.
        column_bytes: Stored bytes of the selected columns per row group; None if unknown.

    Raises:
        InvalidArgumentError: `column_bytes` does not match the row groups.
    """
    data = _Data(inventory, selection, checked_column_bytes(column_bytes, inventory.num_row_groups))
    shard = request.shard
    order = EpochOrder(data.rows, request.order, 0)
    every_rank = [Shard(rank, shard.count) for rank in range(shard.count)]
    ranks = Ranks([lanes_of(rank, order.lanes) for rank in every_rank], shard.index)
    full = batches.num_rows // batches.global_batch
    starts = sampled_steps(full) * batches.global_batch
    shares = [batches.rows_of(rank) for rank in every_rank]
    return Explanation(
        **_kept(data),
        **_ordered(order, request.order),
        **_read(data, [(order, 1, data.rows.sum())], ranks),
        **_mixed(data.rows, order, np.stack([starts, starts + batches.global_batch], axis=1)),
        rank=shard.index,
        ranks=shard.count,
        batch_size=batches.batch_size,
        steps=batches.steps,
        rows_per_rank=(min(shares), max(shares)),
        last_batch=request.last_batch.value,
    )


def explain_source(
    inventory: Inventory,
    selection: Selection | None,
    orders: Sequence[EpochOrder],
    requested: Order,
    *,
    ranks: Ranks,
    proportion: int,
    rows_given: int,
    borders: NDArray[np.int64],
    column_bytes: NDArray[np.int64] | None = None,
) -> SourceExplanation:
    """Explain what an epoch of a mixture reads from one source, for `Mixture.explain`.

    Args:
        inventory: Inventory of the dataset.
        selection: Selected rows; None means all.
        orders: Row orders of the source's first and last epoch inside the first epoch of the mixture; a single order if
            these are the same epoch.
        requested: Requested order of the source.
        ranks: Lanes of the source that each rank reads.
        proportion: Weight of the source as an integer (`Mixture.proportions`).
        rows_given: Rows of the source in the epoch.
        borders: Half-open ranges of the source's rows in some global batches, before the source starts over; shape
            (batches, 2).
        column_bytes: As in `explain_plan`, checked.
    """
    data = _Data(inventory, selection, column_bytes)
    num_rows = int(data.rows.sum())
    whole, rest = divmod(rows_given, num_rows)
    passes = [(orders[0], whole, num_rows), (orders[-1], 1, rest)]
    return SourceExplanation(
        **_kept(data),
        **_ordered(orders[0], requested),
        **_read(data, [(order, times, rows) for order, times, rows in passes if times and rows], ranks),
        **_mixed(data.rows, orders[0], borders),
        proportion=proportion,
        rows_given=rows_given,
        passes=rows_given / num_rows,
    )


def sampled_steps(steps: int, most: int = _SAMPLED_BATCHES) -> NDArray[np.int64]:
    """Return at most `most` evenly spaced steps, with the first and the last step.

    Example:
        >>> sampled_steps(100, 4).tolist(), sampled_steps(3, 4).tolist()
        ([0, 33, 66, 99], [0, 1, 2])
    """
    return np.unique(np.linspace(0, steps - 1, min(most, steps)).astype(np.int64))


def checked_column_bytes(column_bytes: Any, row_groups: int) -> NDArray[np.int64] | None:
    """Check the `column_bytes` that the user passed, and return the array, or None.

    Raises:
        InvalidArgumentError: The value is not an array of integers, one for each row group.
    """
    if column_bytes is None:
        return None
    given = np.asarray(column_bytes)
    if given.shape != (row_groups,) or given.dtype.kind not in "iu":
        raise InvalidArgumentError(
            f"column_bytes must be integers, one for each of {row_groups:,} row groups, got shape {given.shape} and "
            f"dtype {given.dtype}"
        )
    return given.astype(np.int64)


def _kept(data: _Data) -> dict[str, Any]:
    """Return the figures of `ReadFacts` about selected row groups and rows, by name."""
    inventory, rows = data.inventory, data.rows
    pruned = () if data.selection is None else data.selection.pruned
    filled, kept = int((inventory.rows > 0).sum()), int((rows > 0).sum())
    row_groups = filled - kept - sum(step.row_groups for step in pruned)
    left_out = inventory.num_rows - int(rows.sum()) - sum(step.rows for step in pruned)
    if left_out > 0:
        pruned = (*pruned, Pruned("selection", max(row_groups, 0), left_out))
    return {
        "row_groups": inventory.num_row_groups,
        "row_groups_kept": kept,
        "row_groups_empty": inventory.num_row_groups - filled,
        "dataset_rows": inventory.num_rows,
        "rows": int(rows.sum()),
        "pruned": pruned,
    }


def _ordered(order: EpochOrder, requested: Order) -> dict[str, Any]:
    """Return the figures of `ReadFacts` about the row order, by name."""
    return {
        "shuffle_row_groups": requested.shuffle_row_groups,
        "shuffle_rows": requested.shuffle_rows,
        "lanes": order.lanes,
        "block_rows": requested.block_rows if requested.shuffle_rows else 1,
        "seed": requested.seed,
        "dealt_to": requested.dealt_to,
    }


def _read(data: _Data, passes: Sequence[tuple[EpochOrder, int, int]], ranks: Ranks) -> dict[str, Any]:
    """Return the figures of `ReadFacts` about fetched bytes and memory, by name.

    Args:
        data: Row groups of the dataset.
        passes: Reads of the data, each from its first row on: row order, number of repetitions, and number of rows.
        ranks: Lanes that each rank reads.
    """
    reads = fetched = own_fetched = needed = rows_resident = bytes_resident = 0
    for order, times, rows in passes:
        pieces = order.pieces()
        pieces = pieces.chosen(pieces.first_positions < rows)  # a partial read needs only some row groups
        # readers: (groups,) number of ranks that read each row group
        readers = _readers(pieces, ranks.own_lanes, order.lanes, data.inventory.num_row_groups)
        own = pieces.of_lanes(ranks.own_lanes[ranks.rank])
        reads += times * int(readers.sum())
        needed += times * int((readers > 0).sum())
        fetched += times * int((readers * data.fetched_bytes).sum())
        own_fetched += times * int(data.fetched_bytes[np.unique(own.groups)].sum())
        own_rows, own_bytes = _resident(own, data.inventory)
        rows_resident, bytes_resident = max(rows_resident, own_rows), max(bytes_resident, own_bytes)
    return {
        "reads_per_row_group": reads / max(needed, 1),
        "bytes_to_fetch": fetched,
        "rank_bytes_to_fetch": own_fetched,
        "bytes_of": "row groups" if data.column_bytes is None else "columns",
        "rows_resident": rows_resident,
        "bytes_resident": bytes_resident,
    }


def _readers(pieces: Pieces, own_lanes: Sequence[range], lanes: int, row_groups: int) -> NDArray[np.int64]:
    """Return the number of ranks that read each row group, shape (row groups,)."""
    # first_rank, last_rank: (lanes,) first and last rank that has rows of each lane
    first_rank, last_rank = np.zeros(lanes, np.int64), np.zeros(lanes, np.int64)
    for rank, own in enumerate(own_lanes):
        last_rank[own.start : own.stop] = rank
    for rank, own in reversed(list(enumerate(own_lanes))):
        first_rank[own.start : own.stop] = rank
    # The lanes that share a row group are adjacent, so the ranks that read it are consecutive.
    lowest = np.full(row_groups, len(own_lanes), dtype=np.int64)
    highest = np.full(row_groups, -1, dtype=np.int64)
    np.minimum.at(lowest, pieces.groups, first_rank[pieces.lanes])
    np.maximum.at(highest, pieces.groups, last_rank[pieces.lanes])
    return np.maximum(highest - lowest + 1, 0)


def _resident(pieces: Pieces, inventory: Inventory) -> tuple[int, int]:
    """Return the peak rows and the peak bytes of row groups that are in memory together.

    Args:
        pieces: Row groups of the lanes (interleaved sequences of row groups) that are read, with the positions at which
            they are needed.
        inventory: Inventory of the dataset.
    """
    groups, first, last = needed_from_to(pieces)
    return (
        most_at_a_time(first, last, inventory.rows[groups]),
        most_at_a_time(first, last, inventory.decoded_bytes[groups]),
    )


def _mixed(rows: NDArray[np.int64], order: EpochOrder, borders: NDArray[np.int64]) -> dict[str, Any]:
    """Return the mixing figures of `ReadFacts`, by name.

    They assume that the dataset is sorted by label.

    Args:
        rows: Selected rows of each row group, shape (groups,).
        order: Order of the epoch.
        borders: Half-open range of positions in the epoch of each global batch, shape (batches, 2).
    """
    num_rows = int(rows.sum())
    if len(borders) == 0:  # no batch is full, so the only batch has all rows and is mixed perfectly
        return {"mixing": 0.0, "mixing_uniform": 0.0, "mixing_none": 0.0}
    labels = min(_LABELS, num_rows)
    # label_shares: (labels,) share of each label in the dataset; numbers of rows per label differ by at most one
    label_shares = np.diff(-(-np.arange(labels + 1) * num_rows // labels)) / num_rows
    starts = np.cumsum(rows) - rows
    variations = []
    for start, stop in borders.tolist():
        groups, inside = order.rows_at(np.arange(start, stop))
        of_rows = (starts[groups] + inside) * labels // num_rows
        shares = np.bincount(of_rows, minlength=labels) / (stop - start)
        variations.append(np.abs(shares - label_shares).sum() / 2)
    batch = float(np.diff(borders).mean())
    return {
        "mixing": float(np.mean(variations)),
        "mixing_uniform": _uniform_mixing(labels, batch, num_rows),
        "mixing_none": 1 - max(batch / num_rows, 1 / labels),
    }


def _uniform_mixing(labels: int, batch: float, num_rows: int) -> float:
    """Return the mixing of a random batch: its mean distance from the dataset.

    The distance is the total variation distance between the label shares of the batch and of the dataset. It is
    computed from the mean deviation of a label's count in the batch from the expected count.

    The mean absolute deviation of a hypergeometric distribution is 2·k·(N − K − n + k) / N · P(count = k), where N is
    the number of rows, K the rows of a label, n the rows of a batch, and k the smallest count above the mean.
    """
    drawn, size = max(round(batch), 1), num_rows / labels
    above = math.floor(drawn / labels) + 1
    if above > size:
        return 0.0
    others = num_rows - size - drawn + above
    log_chance = (
        _log_choices(size, above) + _log_choices(num_rows - size, drawn - above) - _log_choices(num_rows, drawn)
    )
    return labels / drawn * above * others / num_rows * math.exp(log_chance)


def _log_choices(among: float, chosen: int) -> float:
    """Return the natural logarithm of the binomial coefficient "among over chosen"."""
    return math.lgamma(among + 1) - math.lgamma(chosen + 1) - math.lgamma(among - chosen + 1)
