"""Batch order of a mixture with `batching="per_source"`, by sort keys. No I/O.

In such a mixture, each batch has rows of one source, and the batches of all sources are sorted by key. The key is
`(n + f) / w`: n is the number of rows that the source has yielded before the batch, f is a hashed number of rows below
the batch size, and w is the weight of the source. Keys of one source ascend, so its batches keep their order.

A division gives the number of keys below any value, with an error of at most one batch; comparing two keys corrects
this error. The step of a batch, and the batch of a step, are therefore found without replay. `SourceBatches` looks up
the rows of steps in any order.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from petastore.plan.batches.epoch_batches import EpochBatches
from petastore.plan.mixture.mixed_line import BATCHES, fractions_of
from petastore.plan.order.mix import mix

__all__ = ["BatchKeys"]

_KEYS_AT_A_TIME = 256
"""Number of sort keys of a source that are computed at once."""


class BatchKeys:
    """Order of the batches of several sources; each batch has rows of one source.

    Args:
        batches: Batches of each source.
        weights: Proportions of the sources.
        hashed_for: Integers, such as seed and epoch, from which the order of the sources is hashed.

    Example:
        >>> from petastore.plan.request import LastBatch
        >>> batches = [EpochBatches(rows, 2, 1, 1, LastBatch.EVEN) for rows in (8, 4)]
        >>> keys = BatchKeys(batches, (2, 1), hashed_for=(0, 0))
        >>> list(keys.merged()), keys.at(3), keys.steps_of(1, np.arange(2)).tolist()
        ([0, 1, 0, 0, 0, 1], (0, 2), [1, 5])
    """

    def __init__(self, batches: Sequence[EpochBatches], weights: Sequence[int], *, hashed_for: tuple[int, int]) -> None:
        self._batches = batches
        self._weights = weights
        self._states = [mix(BATCHES, *hashed_for, source) for source in range(len(batches))]

    def _keys(self, source: int, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the sort keys of some batches of a source, shape (n,).

        `numbers` are the numbers of the batches in the source's order, from 0.
        """
        part = self._batches[source]
        given = part.start + numbers * part.global_batch
        keys: NDArray[np.float64] = given + part.global_batch * fractions_of(self._states[source], given)
        keys /= self._weights[source]
        return keys

    def merged(self, firsts: Sequence[int] | None = None) -> Iterator[int]:
        """Yield the source of each batch; batches of all sources are sorted by key.

        Args:
            firsts: First batch of each source; None means the first batches of the epoch.
        """
        keys = [self._pairs(source, first) for source, first in enumerate(firsts or [0] * len(self._batches))]
        return (source for _, source in heapq.merge(*keys))

    def _pairs(self, source: int, begin: int) -> Iterator[tuple[float, int]]:
        """Yield the sort key of each batch of a source, ascending, and the source.

        `begin` is the number of the first batch.
        """
        steps = self._batches[source].steps
        for first in range(begin, steps, _KEYS_AT_A_TIME):
            keys = self._keys(source, np.arange(first, min(first + _KEYS_AT_A_TIME, steps)))
            yield from zip(keys.tolist(), itertools.repeat(source), strict=False)

    def _before(self, source: int, keys: NDArray[np.float64], *, or_equal: bool) -> NDArray[np.int64]:
        """Return how many batches of a source have smaller sort keys than each given key.

        `or_equal` also counts equal keys. Shape (n,).
        """
        part = self._batches[source]
        # For batch i, key · weight - start is between i · global_batch and (i + 1) · global_batch. A division therefore
        # gives the number of batches with an error of at most one, so only the keys of two batches are compared.
        close = np.floor((keys * self._weights[source] - part.start) / part.global_batch).astype(np.int64)
        counts = np.clip(close - 1, 0, part.steps)
        for numbers in (close - 1, close):
            own = self._keys(source, numbers)
            is_before = (own <= keys) if or_equal else (own < keys)
            counts += is_before & (numbers >= 0) & (numbers < part.steps)
        return counts

    def steps_of(self, source: int, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the step at which each given batch of a source is read, shape (n,).

        `numbers` are the numbers of the batches in the source's order, from 0.
        """
        keys, steps = self._keys(source, numbers), numbers.copy()
        for other in range(len(self._batches)):
            if other != source:
                steps += self._before(other, keys, or_equal=other < source)
        return steps

    def counts_before(self, step: int) -> tuple[int, ...]:
        """Return the number of batches that each source has before a step."""
        parts = self._batches
        size, weight = parts[0].global_batch, sum(self._weights)
        key = (size * (step - len(parts)) + sum(part.start for part in parts)) / weight
        while True:
            bound = np.array([key])
            counts = [int(self._before(source, bound, or_equal=False)[0]) for source in range(len(parts))]
            beyond = sum(counts) - step
            if beyond <= 0:
                break
            key -= beyond * size / weight
        for source in itertools.islice(self.merged(counts), -beyond):
            counts[source] += 1
        return tuple(counts)

    def at(self, step: int) -> tuple[int, int]:
        """Return the source of a step's batch, and the batch's number in this source."""
        counts = self.counts_before(step)
        source = next(self.merged(counts))
        return source, counts[source]
