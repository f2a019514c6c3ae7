"""Runs of lanes: what a rank takes of its own lanes in some consecutive batches, by arithmetic alone. Pure.

Visit v of L belongs to one lane, which so holds the positions v, v + L, v + 2·L, …. Of the positions below b it holds
⌈(b - v) / L⌉, so a run of positions takes a run of each lane, and nothing is looked up a row.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from petastore.once import once
from petastore.plan.order.mix import counting
from petastore.plan.order.visits import visit_of_lane

__all__ = ["LaneRuns"]


@dataclasses.dataclass(frozen=True, eq=False)
class LaneRuns:
    """The rows of some consecutive batches that come from a run of lanes, lane after lane."""

    lanes: int
    """How many lanes there are in all."""

    own: range
    """The lanes that rows are of."""

    firsts: NDArray[np.int64]
    """Of each of `own`: the turn of its first row, counted from the beginning of the epoch; shape (own,)."""

    stops: NDArray[np.int64]
    """Of each: the turn after its last row, shape (own,)."""

    counts: NDArray[np.int64] | None = None
    """How many rows each batch has of each of `own`, shape (batches, own); None where batches do not matter, and rows
    are wanted lane after lane."""

    @once
    def where(self) -> NDArray[np.int64] | None:
        """Where each row stands in its batches, if they are laid lane after lane; shape (rows,). None: in this order.

        Worked out by whoever asks first.
        """
        if self.counts is None or len(self.own) == 1 or len(self.counts) == 1:
            return None
        return _where(self.counts)

    @classmethod
    def between(cls, borders: NDArray[np.int64], *, lanes: int, own: range) -> tuple[LaneRuns, NDArray[np.int64]]:
        """The rows of batches, in each of which lane comes after lane.

        Args:
            borders: Batch i has the positions [borders[i], borders[i + 1]), shape (batches + 1,).
            lanes: How many lanes there are.
            own: Those that are meant.

        Returns:
            The runs, and where batches begin among their rows, shape (batches + 1,).

        Example:
            >>> runs, offsets = LaneRuns.between(np.array([0, 4, 8]), lanes=4, own=range(2))
            >>> runs.firsts.tolist(), runs.stops.tolist(), runs.where.tolist(), offsets.tolist()
            ([0, 0], [2, 2], [0, 2, 1, 3], [0, 2, 4])
            >>> runs.positions().tolist()
            [0, 2, 4, 6]
        """
        visits = visit_of_lane(lanes)[own.start : own.stop]
        # turns: (batches + 1, own) turns of each lane before each border; counts: (batches, own) rows of each batch
        turns = np.maximum(-((visits - borders[:, None]) // lanes), 0)
        counts = turns[1:] - turns[:-1]
        offsets = np.zeros(len(borders), dtype=np.int64)
        np.cumsum(counts.sum(axis=1), out=offsets[1:])
        return cls(lanes, own, turns[0], turns[-1], counts), offsets

    def positions(self) -> NDArray[np.int64]:
        """The positions of the rows, batch after batch, shape (rows,)."""
        visits = visit_of_lane(self.lanes)[self.own.start : self.own.stop]
        runs = zip(self.firsts.tolist(), self.stops.tolist(), visits.tolist(), strict=True)
        found = np.concatenate(
            [
                np.arange(first * self.lanes + visit, stop * self.lanes + visit, self.lanes)
                for first, stop, visit in runs
            ]
        ).astype(np.int64, copy=False)
        if self.where is None:
            return found
        positions = np.empty_like(found)
        positions[self.where] = found
        return positions


def _where(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    # A lane's part of a batch lies side by side in both orders: begins: (own · batches,) where it begins among batches,
    # and how far from where it begins lane after lane.
    of_batches = counts.reshape(-1)
    begins = (np.cumsum(of_batches) - of_batches).reshape(counts.shape).T.reshape(-1)
    sizes = counts.T.reshape(-1)
    where = np.repeat(begins - (np.cumsum(sizes) - sizes), sizes)
    where += counting(len(where))
    return where
