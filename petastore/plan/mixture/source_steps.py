"""Look up steps of a mixture with `batching="per_source"`, in any order. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from petastore.plan.batches.epoch_batches import EpochBatches
from petastore.plan.batches.epoch_steps import StepPlaces
from petastore.plan.mixture.batch_keys import BatchKeys
from petastore.plan.request import Shard

__all__ = ["SourceSteps"]


class SourceSteps:
    """Steps of an epoch, or of the rest of an epoch, in which each batch has rows of one source; see `EpochSteps`.

    Args:
        batches: Batches of each source.
        weights: Proportions of the sources.
        hashed_for: Integers, such as seed and epoch, from which the order of the sources is hashed.
    """

    def __init__(self, batches: Sequence[EpochBatches], weights: Sequence[int], *, hashed_for: tuple[int, int]) -> None:
        self._batches = batches
        self._keys = BatchKeys(batches, weights, hashed_for=hashed_for)
        self.steps = sum(part.steps for part in batches)
        """Number of steps."""

    def places_at(self, step: int, shards: Sequence[Shard]) -> list[StepPlaces]:
        """Return the rows of a step in batch order, for each of some ranks."""
        source, number = self._keys.at(step)
        shares = [self._batches[source].share(shard, number, number + 1) for shard in shards]
        return [(np.full(len(share.positions), source), share.positions, share.valid) for share in shares]

    def steps_of(
        self, source: int, places: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return three arrays of one length: index into `places`, step and rank, for each read of these rows."""
        which, numbers, ranks = self._batches[source].steps_of(places)
        return which, self._keys.steps_of(source, numbers), ranks

    def places_before(self, step: int) -> NDArray[np.int64]:
        """Return the number of rows of each source before a step, shape (sources,)."""
        counts = self._keys.counts_before(step)
        before = [
            int(part.consumed_after(range(count - 1, count))[0]) if count else part.start
            for part, count in zip(self._batches, counts, strict=True)
        ]
        return np.array(before, dtype=np.int64)
