"""Which row groups feed which batches: the order of an epoch, as data for a picture or a program. Pure."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from petastore.plan.batches.tail import EpochBatches
from petastore.plan.order.order import EpochOrder
from petastore.plan.report.explain import sampled_steps
from petastore.plan.request import Shard

__all__ = ["MOST_BATCHES", "Feeds", "feeds_of_order", "feeds_of_spans"]

MOST_BATCHES = 200
"""Batches of an epoch that are looked at, at most."""


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Feeds:
    """Which row groups feed which batches on which ranks: one entry for each such three; arrays of one length.

    Example:
        >>> from petastore.plan.request import Order, Tail
        >>> order = Order(seed=0, shuffle_row_groups=False, shuffle_rows=False, lanes=2, block_rows=1)
        >>> batches = EpochBatches(num_rows=8, batch_size=2, ranks=2, lanes=2, last_batch=Tail.EVEN)
        >>> feeds = feeds_of_order(EpochOrder(np.array([4, 4]), order, 0), batches, row_groups=2)
        >>> list(zip(feeds.batches.tolist(), feeds.ranks.tolist(), feeds.row_groups.tolist()))
        [(0, 0, 0), (0, 1, 1), (1, 0, 0), (1, 1, 1)]
    """

    batches: NDArray[np.int64]
    """Number of the batch in its epoch, from 0; ascending."""

    ranks: NDArray[np.int64]
    """Rank, from 0."""

    row_groups: NDArray[np.int64]
    """Row group, by its number in the dataset."""

    looked_at: NDArray[np.int64]
    """The batches that were looked at, ascending; the others have no entries."""

    num_batches: int
    """Batches of the epoch."""

    num_ranks: int
    """Ranks."""

    first_row_groups: tuple[int, ...]
    """The first row group of each source of a mixture, and the number of all; `(0, all)` for a plan."""


def feeds_of_order(order: EpochOrder, batches: EpochBatches, *, row_groups: int) -> Feeds:
    """The feeds of an epoch of a plan; of a long epoch, of batches that are evenly spaced.

    Args:
        order: The order of the epoch.
        batches: How it falls into batches.
        row_groups: Row groups of the dataset.
    """
    looked_at = sampled_steps(batches.steps, MOST_BATCHES)

    def looks() -> Iterator[tuple[int, int, NDArray[np.int32]]]:
        for rank in range(batches.ranks):
            for step in looked_at.tolist():
                share = batches.share(Shard(rank, batches.ranks), step, step + 1)
                yield step, rank, order.rows_at(share.positions)[0]

    return _feeds(
        looks(), looked_at, num_batches=batches.steps, num_ranks=batches.ranks, first_row_groups=(0, row_groups)
    )


class _Batches(Protocol):
    """Consecutive batches of one rank, as a span has them."""

    @property
    def groups(self) -> NDArray[np.int32]:
        """Row group of each row."""

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Where batches begin, and the end."""


def feeds_of_spans(
    spans: Sequence[Iterable[_Batches]], *, num_batches: int, first_row_groups: tuple[int, ...]
) -> Feeds:
    """The feeds of the first batches of an epoch.

    Args:
        spans: Of each rank: its batches from the first one on.
        num_batches: Batches of the epoch.
        first_row_groups: As in `Feeds`.
    """
    looked_at = np.arange(min(num_batches, MOST_BATCHES))

    def looks() -> Iterator[tuple[int, int, NDArray[np.int32]]]:
        for rank, of_rank in enumerate(spans):
            batches = (span.groups[a:b] for span in of_rank for a, b in itertools.pairwise(span.offsets.tolist()))
            for batch, groups in zip(looked_at.tolist(), batches, strict=False):
                yield batch, rank, groups

    return _feeds(looks(), looked_at, num_batches=num_batches, num_ranks=len(spans), first_row_groups=first_row_groups)


def _feeds(
    looks: Iterable[tuple[int, int, NDArray[np.int32]]],
    looked_at: NDArray[np.int64],
    *,
    num_batches: int,
    num_ranks: int,
    first_row_groups: tuple[int, ...],
) -> Feeds:
    """The feeds of some batches.

    Args:
        looks: Batch, rank, and the row group of each of its rows.
        looked_at: The batches, ascending.
        num_batches: Batches of the epoch.
        num_ranks: Ranks.
        first_row_groups: As in `Feeds`.
    """
    # entries: (n, 3) batch, rank, row group
    parts = [np.empty((0, 3), dtype=np.int64)]
    for batch, rank, groups in looks:
        distinct = np.unique(groups).astype(np.int64)
        parts.append(np.stack([np.full_like(distinct, batch), np.full_like(distinct, rank), distinct], axis=1))
    entries = np.concatenate(parts)
    entries = entries[np.lexsort(entries.T[::-1])]
    return Feeds(entries[:, 0], entries[:, 1], entries[:, 2], looked_at, num_batches, num_ranks, first_row_groups)
