"""Look up the rows of a step, and the steps of a row, for any step of an epoch. No I/O.

The *place* of a row is the number of rows that its source yields before this row in this epoch of the plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from petastore.plan.batches.epoch_batches import EpochBatches
from petastore.plan.request import Shard

__all__ = ["EpochSteps", "SharedSteps", "StepPlaces"]

StepPlaces: TypeAlias = "tuple[NDArray[np.integer], NDArray[np.int64], NDArray[np.bool_] | None]"
"""Source and place of each row of a batch, and False for repeats of `LastBatch.PAD` (None if there are none)."""


class EpochSteps(Protocol):
    """Steps of an epoch, or of the rest of an epoch; step 0 is the first batch of the epoch."""

    @property
    def steps(self) -> int:
        """Number of steps."""

    def places_at(self, step: int, shards: Sequence[Shard]) -> list[StepPlaces]:
        """Return the rows of a step in batch order, for each of some ranks."""

    def steps_of(
        self, source: int, places: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return three arrays of one length: index into `places`, step and rank, for each read of these rows."""

    def places_before(self, step: int) -> NDArray[np.int64]:
        """Return the number of rows of each source before a step, shape (sources,)."""


class SourceLine(Protocol):
    """Source at each position of a mixture."""

    def at(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
        """Return the source and the place of each position."""

    def positions(self, source: int, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the position in the mixture of each row of a source, given its place; shape (n,)."""

    def counts_at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of positions of each source before several positions, shape (positions, sources)."""


class SharedSteps:
    """Steps whose batches are ranges of positions, divided among ranks.

    Args:
        batches: Division of the epoch into batches.
        line: Source at each position; None if there is only one source.

    Example:
        >>> from petastore.plan.request import LastBatch
        >>> steps = SharedSteps(EpochBatches(11, batch_size=2, ranks=2, lanes=1, last_batch=LastBatch.WRAP))
        >>> [places.tolist() for _, places, _ in steps.places_at(2, [Shard(0, 2), Shard(1, 2)])]
        [[8, 9], [10, 0]]
        >>> [array.tolist() for array in steps.steps_of(0, np.array([0, 9]))]
        [[0, 1, 0], [0, 2, 2], [0, 0, 1]]
    """

    def __init__(self, batches: EpochBatches, line: SourceLine | None = None) -> None:
        self._batches = batches
        self._line = line
        self.steps = batches.steps
        """Number of steps."""

    def places_at(self, step: int, shards: Sequence[Shard]) -> list[StepPlaces]:
        """Return the rows of a step in batch order, for each of some ranks."""
        shares = [self._batches.share(shard, step, step + 1) for shard in shards]
        if self._line is None:
            return [(np.zeros_like(share.positions), share.positions, share.valid) for share in shares]
        return [(*self._line.at(share.positions), share.valid) for share in shares]

    def steps_of(
        self, source: int, places: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return three arrays of one length: index into `places`, step and rank, for each read of these rows."""
        return self._batches.steps_of(places if self._line is None else self._line.positions(source, places))

    def places_before(self, step: int) -> NDArray[np.int64]:
        """Return the number of rows of each source before a step, shape (sources,)."""
        positions = np.array([self._batches.start + step * self._batches.global_batch])
        return positions if self._line is None else self._line.counts_at(positions)[0]
