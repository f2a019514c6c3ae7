"""Global batches, their tails, and each rank's share of them: the same number of batches on every rank. Pure.

A global batch of GB = batch size × ranks rows is a run of positions of the epoch. Sorted by lane, it is cut into R
shares that differ by at most one row. Where the ranks divide the lanes, `petastore.plan.order.visits` sees to it that
rank r's share is what its own lanes give, to the row; else rank r of R takes slots [r·n // R, (r + 1)·n // R) of n.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
from numpy.typing import NDArray

from petastore.errors import NoDataAvailableError
from petastore.once import once
from petastore.plan.order.visits import LaneRuns, lane_of_visit, spreads_evenly
from petastore.plan.request import Shard, Tail

__all__ = ["EpochBatches", "Share", "lanes_of"]


@dataclasses.dataclass(frozen=True, eq=False)
class Share:
    """One rank's rows of some consecutive batches."""

    rows: NDArray[np.int64] | LaneRuns
    """Positions in the epoch, batch after batch, shape (rows,); or all of them as runs of lanes."""

    offsets: NDArray[np.int64]
    """Where batches begin: batch i holds rows [offsets[i], offsets[i + 1]), shape (batches + 1,)."""

    valid: NDArray[np.bool_] | None
    """With `Tail.PAD`: False where a row is a repeat, shape (rows,). Else None."""

    @once
    def positions(self) -> NDArray[np.int64]:
        """Positions in the epoch, batch after batch, shape (rows,)."""
        return self.rows.positions() if isinstance(self.rows, LaneRuns) else self.rows


@dataclasses.dataclass(frozen=True)
class EpochBatches:
    """How the positions [start, num_rows) of an epoch fall into batches.

    Raises:
        NoDataAvailableError: `Tail.EVEN` with fewer rows than ranks; raised on every rank alike.

    Example:
        >>> batches = EpochBatches(num_rows=11, batch_size=2, ranks=2, lanes=1, last_batch=Tail.EVEN)
        >>> batches.steps
        3
        >>> [batches.share(Shard(rank, 2), 2, 3).positions.tolist() for rank in range(2)]
        [[8], [9, 10]]
    """

    num_rows: int
    """Rows of the whole epoch."""

    batch_size: int
    """Rows of a full batch of one rank."""

    ranks: int
    """Ranks that share a global batch."""

    lanes: int
    """Lanes of the order, already limited to the number of rows."""

    last_batch: Tail
    """What becomes of the rows that fill no whole global batch."""

    start: int = 0
    """First position that is not consumed yet."""

    def __post_init__(self) -> None:
        if self.last_batch is Tail.EVEN and 0 < self.num_rows < self.ranks:
            raise NoDataAvailableError(
                f"{self.num_rows:,} row{'' if self.num_rows == 1 else 's'} cannot be shared evenly by {self.ranks:,} "
                "ranks: some would have no batch where others have one, and synchronous training would hang. "
                "Use fewer ranks, or last_batch='pad' or last_batch='wrap'"
            )

    @property
    def global_batch(self) -> int:
        """Rows of a full batch over all ranks."""
        return self.batch_size * self.ranks

    @once
    def steps(self) -> int:
        """Batches that each rank gets."""
        full, left = divmod(self.num_rows - self.start, self.global_batch)
        if left == 0 or self.last_batch is Tail.DROP:
            return full
        joins_the_batch_before = self.last_batch is Tail.EVEN and left < self.ranks and full > 0
        return full if joins_the_batch_before else full + 1

    def consumed_after(self, steps: range) -> NDArray[np.int64]:
        """Positions that are consumed after each of some steps, at most `num_rows`; shape (steps,)."""
        consumed = self.start + np.arange(steps.start + 1, steps.stop + 1, dtype=np.int64) * self.global_batch
        if steps and steps.stop == self.steps and self.last_batch is not Tail.DROP:
            consumed[-1] = self.num_rows
        return consumed

    def rows_of(self, shard: Shard) -> int:
        """Rows that a rank gets in the epoch, repeats included."""
        if self.steps == 0:
            return 0
        if self.last_batch is not Tail.EVEN:
            return self.steps * self.batch_size
        begin = self.start + (self.steps - 1) * self.global_batch
        last = _lane_major(begin % self.lanes, self.num_rows - begin, self.lanes, shard)
        return (self.steps - 1) * self.batch_size + len(last)

    def share(self, shard: Shard, first: int, stop: int) -> Share:
        """A rank's rows of the batches [first, stop).

        Args:
            shard: The rank; `shard.count` is `ranks`.
            first: First step.
            stop: Step after the last one, at most `steps`.
        """
        borders = np.concatenate([[self.start + first * self.global_batch], self.consumed_after(range(first, stop))])
        irregular = int(borders[-1]) - self.start != stop * self.global_batch
        if self._takes_own_lanes(shard) and not (irregular and self.last_batch in (Tail.PAD, Tail.WRAP)):
            runs, offsets = LaneRuns.between(borders, lanes=self.lanes, own=lanes_of(shard, self.lanes))
            valid = np.ones(int(offsets[-1]), dtype=np.bool_) if self.last_batch is Tail.PAD else None
            return Share(runs, offsets, valid)
        regular = self._full_batches(shard, first, stop - 1 if irregular else stop)
        if not irregular:
            positions, valid = regular, np.ones(len(regular), dtype=np.bool_)
        else:
            tail_positions, tail_valid = self._last_batch(shard, stop - 1)
            positions = np.concatenate([regular, tail_positions])
            valid = np.concatenate([np.ones(len(regular), dtype=np.bool_), tail_valid])
        offsets = np.arange(first, stop + 1, dtype=np.int64) - first
        offsets *= self.batch_size
        offsets[-1] = len(positions)
        return Share(positions, offsets, valid if self.last_batch is Tail.PAD else None)

    def _takes_own_lanes(self, shard: Shard) -> bool:
        """Whether a rank's share of any run of positions is what its own lanes have of it; and these are few."""
        lanes, ranks = self.lanes, shard.count
        is_even = self.start % ranks == 0 and spreads_evenly(lanes, ranks)
        return is_even and lanes // ranks <= self.batch_size

    def _full_batches(self, shard: Shard, first: int, stop: int) -> NDArray[np.int64]:
        begins = self.start + np.arange(first, stop, dtype=np.int64) * self.global_batch
        residues = begins % self.lanes
        # picks: (batches, batch_size) places of the rank's rows inside each global batch
        picks = np.empty((len(begins), self.batch_size), dtype=np.int64)
        for residue in np.unique(residues).tolist():
            picks[residues == residue] = _lane_major(residue, self.global_batch, self.lanes, shard)
        picks += begins[:, None]
        return picks.reshape(-1)

    def _last_batch(self, shard: Shard, step: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        begin = self.start + step * self.global_batch
        left = self.num_rows - begin
        if self.last_batch is Tail.WRAP:
            whole = np.arange(begin, begin + self.global_batch, dtype=np.int64) % self.num_rows
            by_lane = whole[np.argsort(lane_of_visit(self.lanes)[whole % self.lanes], kind="stable")]
            first_slot, stop_slot = _slots(shard, self.global_batch)
            return by_lane[first_slot:stop_slot], np.ones(self.batch_size, dtype=np.bool_)
        real = begin + _lane_major(begin % self.lanes, left, self.lanes, shard)
        if self.last_batch is Tail.EVEN:
            return real, np.ones(len(real), dtype=np.bool_)
        return self._padded(real, fallback=begin + shard.index % left)

    def _padded(self, real: NDArray[np.int64], *, fallback: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        # A rank repeats its own rows, which it has at hand; one without any repeats a row of another rank.
        repeated = real if len(real) else np.array([fallback], dtype=np.int64)
        valid = np.arange(self.batch_size) < len(real)
        return np.resize(repeated, self.batch_size), valid


def lanes_of(shard: Shard, lanes: int) -> range:
    """The lanes that a rank's share of a full batch comes from.

    Example:
        >>> lanes_of(Shard(1, 3), 6), lanes_of(Shard(1, 4), 6)
        (range(2, 4), range(1, 3))
    """
    return range(shard.index * lanes // shard.count, -(-(shard.index + 1) * lanes // shard.count))


def _slots(shard: Shard, rows: int) -> tuple[int, int]:
    return shard.index * rows // shard.count, (shard.index + 1) * rows // shard.count


@functools.lru_cache(maxsize=4096)
def _lane_major(residue: int, rows: int, lanes: int, shard: Shard) -> NDArray[np.int64]:
    """A rank's places in a batch of `rows` positions that begins with visit `residue`, sorted by lane."""
    lane = lane_of_visit(lanes)[(residue + np.arange(rows)) % lanes]
    by_lane = np.argsort(lane, kind="stable")
    if spreads_evenly(lanes, shard.count) and residue % shard.count == 0:
        first_slot, stop_slot = np.searchsorted(
            lane[by_lane], [shard.index * lanes // shard.count, (shard.index + 1) * lanes // shard.count]
        )
    else:
        first_slot, stop_slot = _slots(shard, rows)
    mine = by_lane[first_slot:stop_slot].astype(np.int64)
    mine.flags.writeable = False
    return mine
