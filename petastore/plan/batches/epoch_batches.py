"""Divide an epoch into global batches, and each global batch among ranks. No I/O.

All ranks have the same number of steps. A global batch has batch size × R rows for R ranks, at consecutive positions
(indices of rows in the epoch). Its n rows are sorted by lane (one of the sequences of row groups that an epoch
interleaves) and divided into R shares that differ by at most one row: rank r takes rows [r·n // R, (r + 1)·n // R). If
the number of lanes is divisible by R, `petastore.plan.order.visits` ensures that this share contains exactly the rows
of the rank's own lanes.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
from numpy.typing import NDArray

from petastore.errors import NoDataAvailableError
from petastore.lazy import once
from petastore.plan.order.visits import LaneRuns, lane_of_visit, spreads_evenly
from petastore.plan.request import LastBatch, Shard

__all__ = ["EpochBatches", "Share", "lanes_of"]


@dataclasses.dataclass(frozen=True, eq=False)
class Share:
    """Share: the rows that one rank gets in some consecutive batches."""

    rows: NDArray[np.int64] | LaneRuns
    """Position in the epoch of each row, in batch order, shape (rows,).

    Or `LaneRuns`, which has the same rows as one range for each lane (interleaved sequence of row groups)."""

    offsets: NDArray[np.int64]
    """Batch boundaries, shape (batches + 1,).

    Batch i has the rows [offsets[i], offsets[i + 1])."""

    valid: NDArray[np.bool_] | None
    """Mask that is False for repeated rows of `LastBatch.PAD`, shape (rows,).

    None for other policies."""

    @once
    def positions(self) -> NDArray[np.int64]:
        """Position in the epoch of each row, in batch order, shape (rows,)."""
        return self.rows.positions() if isinstance(self.rows, LaneRuns) else self.rows


@dataclasses.dataclass(frozen=True)
class EpochBatches:
    """Division of an epoch's rows into batches.

    Raises:
        NoDataAvailableError: `LastBatch.EVEN` and fewer rows than ranks; every rank raises this error.

    Example:
        >>> batches = EpochBatches(num_rows=11, batch_size=2, ranks=2, lanes=1, last_batch=LastBatch.EVEN)
        >>> batches.steps
        3
        >>> [batches.share(Shard(rank, 2), 2, 3).positions.tolist() for rank in range(2)]
        [[8], [9, 10]]
    """

    num_rows: int
    """Number of rows of the whole epoch, over all ranks."""

    batch_size: int
    """Number of rows of a full batch on one rank."""

    ranks: int
    """Number of ranks that share a global batch."""

    lanes: int
    """Number of lanes, at most the number of rows.

    Lanes are the sequences of row groups that the epoch interleaves."""

    last_batch: LastBatch
    """Policy for rows that do not fill a global batch."""

    start: int = 0
    """Number of rows of the epoch that were consumed before the first batch."""

    is_rest: bool = False
    """Whether the rows are the rest of an epoch after rows were excluded.

    The rest may have fewer rows than ranks."""

    def __post_init__(self) -> None:
        if self.last_batch is LastBatch.EVEN and 0 < self.num_rows < self.ranks and not self.is_rest:
            raise NoDataAvailableError(
                f"each rank must have at least one row, got {self.num_rows:,} row{'' if self.num_rows == 1 else 's'} "
                f"for {self.ranks:,} ranks: some ranks would have no batch, and synchronous training would hang. Use "
                "fewer ranks, or last_batch='pad' or last_batch='wrap'"
            )

    @property
    def global_batch(self) -> int:
        """Number of rows of a full batch over all ranks."""
        return self.batch_size * self.ranks

    @once
    def steps(self) -> int:
        """Number of batches that each rank gets after `start`."""
        full, left = divmod(self.num_rows - self.start, self.global_batch)
        if left == 0 or self.last_batch is LastBatch.DROP:
            return full
        joins_the_batch_before = self.last_batch is LastBatch.EVEN and left < self.ranks and full > 0
        return full if joins_the_batch_before else full + 1

    def consumed_after(self, steps: range) -> NDArray[np.int64]:
        """Return how many rows of the epoch all ranks have consumed after each step.

        `steps` is a range of steps; the result has shape (steps,).
        """
        consumed = self.start + np.arange(steps.start + 1, steps.stop + 1, dtype=np.int64) * self.global_batch
        if steps and steps.stop == self.steps and self.last_batch is not LastBatch.DROP:
            consumed[-1] = self.num_rows
        return consumed

    def rows_of(self, shard: Shard) -> int:
        """Return the number of rows that a rank gets after `start`, including repeats."""
        if self.steps == 0:
            return 0
        if self.last_batch is not LastBatch.EVEN:
            return self.steps * self.batch_size
        begin = self.start + (self.steps - 1) * self.global_batch
        last = _lane_major(begin % self.lanes, self.num_rows - begin, self.lanes, shard)
        return (self.steps - 1) * self.batch_size + len(last)

    def share(self, shard: Shard, first: int, stop: int) -> Share:
        """Return the rows of a rank in the batches [first, stop).

        Args:
            shard: Shard of the rank; `shard.count` equals `ranks`.
            first: First step.
            stop: Step after the last one, at most `steps`.
        """
        borders = np.concatenate([[self.start + first * self.global_batch], self.consumed_after(range(first, stop))])
        irregular = int(borders[-1]) - self.start != stop * self.global_batch
        if self._takes_own_lanes(shard) and not (irregular and self.last_batch in (LastBatch.PAD, LastBatch.WRAP)):
            runs, offsets = LaneRuns.between(borders, lanes=self.lanes, own=lanes_of(shard, self.lanes))
            valid = np.ones(int(offsets[-1]), dtype=np.bool_) if self.last_batch is LastBatch.PAD else None
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
        return Share(positions, offsets, valid if self.last_batch is LastBatch.PAD else None)

    def steps_of(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the batches that contain given positions: the inverse of `share`.

        A position may have no batch, because it is before `start` or was dropped, and several batches with
        `LastBatch.WRAP`. The repeated rows of `LastBatch.PAD` are not counted.

        Args:
            positions: Positions in the epoch, in any order, shape (n,).

        Returns:
            Three arrays of equal length: index into `positions`, batch and rank.

        Example:
            >>> batches = EpochBatches(num_rows=11, batch_size=2, ranks=2, lanes=1, last_batch=LastBatch.EVEN)
            >>> [array.tolist() for array in batches.steps_of(np.array([10, 8, 0]))]
            [[2, 1, 0], [0, 2, 2], [0, 0, 1]]
        """
        last = range(max(self.steps - 1, 0), self.steps)
        is_regular = not last or int(self.consumed_after(last)[0]) - self.start == self.steps * self.global_batch
        steps, places = np.divmod(positions - self.start, self.global_batch)
        full = np.flatnonzero((steps >= 0) & (steps < (self.steps if is_regular else last.start)))
        residues = (self.start + steps[full] * self.global_batch) % self.lanes
        ranks = np.empty(len(full), dtype=np.int64)
        for residue in np.unique(residues).tolist():
            here = residues == residue
            ranks[here] = self._ranks_of_places(residue)[places[full[here]]]
        parts = [(full, steps[full], ranks)]
        for rank in () if is_regular else range(self.ranks):
            share = self.share(Shard(rank, self.ranks), last.start, last.stop)
            own = share.positions if share.valid is None else share.positions[share.valid]
            own, times = np.unique(own, return_counts=True)  # WRAP may repeat a row within a batch
            which = np.flatnonzero(np.isin(positions, own))
            which = np.repeat(which, times[np.searchsorted(own, positions[which])])
            parts.append((which, np.full(len(which), last.start), np.full(len(which), rank)))
        which, steps, ranks = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return which, steps, ranks

    def _ranks_of_places(self, residue: int) -> NDArray[np.int64]:
        """Return the rank that gets each row of a full global batch, in epoch order.

        Args:
            residue: Position in the epoch of the batch's first row, modulo the number of lanes (the sequences of row
                groups that the epoch interleaves).

        Returns:
            Ranks, shape (global batch,).
        """
        ranks = np.empty(self.global_batch, dtype=np.int64)
        for rank in range(self.ranks):
            ranks[_lane_major(residue, self.global_batch, self.lanes, Shard(rank, self.ranks))] = rank
        return ranks

    def _takes_own_lanes(self, shard: Shard) -> bool:
        """Return whether all rows of a rank come from its own lanes, in every batch.

        Lanes are the sequences of row groups that the epoch interleaves.
        """
        lanes, ranks = self.lanes, shard.count
        is_even = self.start % ranks == 0 and spreads_evenly(lanes, ranks)
        return is_even and lanes // ranks <= self.batch_size

    def _full_batches(self, shard: Shard, first: int, stop: int) -> NDArray[np.int64]:
        """Return the positions of a rank's rows in the full batches [first, stop).

        The positions are in batch order.
        """
        begins = self.start + np.arange(first, stop, dtype=np.int64) * self.global_batch
        residues = begins % self.lanes
        # picks: (batches, batch_size) index of each of the rank's rows in its global batch
        picks = np.empty((len(begins), self.batch_size), dtype=np.int64)
        for residue in np.unique(residues).tolist():
            picks[residues == residue] = _lane_major(residue, self.global_batch, self.lanes, shard)
        picks += begins[:, None]
        return picks.reshape(-1)

    def _last_batch(self, shard: Shard, step: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the positions of a rank's rows in the incomplete last batch, and a mask.

        The mask is False for repeated rows. Both arrays have one entry per row.
        """
        begin = self.start + step * self.global_batch
        left = self.num_rows - begin
        if self.last_batch is LastBatch.WRAP:
            whole = np.arange(begin, begin + self.global_batch, dtype=np.int64) % self.num_rows
            by_lane = whole[np.argsort(lane_of_visit(self.lanes)[whole % self.lanes], kind="stable")]
            first_slot, stop_slot = _slots(shard, self.global_batch)
            return by_lane[first_slot:stop_slot], np.ones(self.batch_size, dtype=np.bool_)
        real = begin + _lane_major(begin % self.lanes, left, self.lanes, shard)
        if self.last_batch is LastBatch.EVEN:
            return real, np.ones(len(real), dtype=np.bool_)
        # A rank repeats its own rows, because they are in memory; a rank without rows repeats one of another rank.
        repeated = real if len(real) else np.array([begin + shard.index % left], dtype=np.int64)
        return np.resize(repeated, self.batch_size), np.arange(self.batch_size) < len(real)


def lanes_of(shard: Shard, lanes: int) -> range:
    """Return the lanes from which a rank gets its rows, as a range of lane numbers.

    Lanes are the sequences of row groups that an epoch interleaves.

    Example:
        >>> lanes_of(Shard(1, 3), 6), lanes_of(Shard(1, 4), 6)
        (range(2, 4), range(1, 3))
    """
    return range(shard.index * lanes // shard.count, -(-(shard.index + 1) * lanes // shard.count))


def _slots(shard: Shard, rows: int) -> tuple[int, int]:
    """Return the half-open range of a rank's rows in a global batch of `rows` rows.

    The range counts the rows after they are sorted by lane (one of the sequences of row groups that an epoch
    interleaves).
    """
    return shard.index * rows // shard.count, (shard.index + 1) * rows // shard.count


@functools.lru_cache(maxsize=4096)
def _lane_major(residue: int, rows: int, lanes: int, shard: Shard) -> NDArray[np.int64]:
    """Return which rows of a global batch a rank gets, sorted by lane.

    The result has the index of each row in the batch, before sorting; shape (n,), read-only.

    Args:
        residue: Position in the epoch of the batch's first row, modulo `lanes`.
        rows: Number of rows of the batch.
        lanes: Number of lanes (sequences of row groups that the epoch interleaves).
        shard: Shard of the rank.
    """
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
