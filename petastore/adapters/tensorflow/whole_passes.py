"""Passes of a length that TensorFlow knows beforehand, of which one that goes on from a state may give less.

Keras takes the cardinality of a dataset for the steps of each epoch; where there is none, it takes the length of the
first epoch for that of all others, and drops rows of these if the first one was the rest of an interrupted one.
`assert_cardinality` makes an error of such a rest. `repeat().take(n)` has a cardinality too, and it ends early where a
repetition has nothing to give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from petastore.adapters.runs import Run

__all__ = ["whole_passes"]


def whole_passes(
    made_of: Callable[[Callable[[], Iterator[Run]]], Any],
    begin: Callable[[], Iterator[Run]],
    *,
    elements: int | None,
    count: Callable[[Run], int],
) -> Any:
    """A dataset whose cardinality is that of a whole pass.

    Args:
        made_of: Makes a dataset of what begins a pass.
        begin: Begins a pass.
        elements: What a whole pass gives; None is without end.
        count: Of a run: how many elements it is.
    """
    if elements is None:
        return made_of(begin).apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
    return made_of(_Passes(begin, elements, count)).repeat().take(elements)


class _Passes:
    """Begins passes; after one that came to its end early, what TensorFlow begins next is that end."""

    def __init__(self, begin: Callable[[], Iterator[Run]], elements: int, count: Callable[[Run], int]) -> None:
        self._begin, self._elements, self._count = begin, elements, count
        self._ended_early = False

    def __call__(self) -> Iterator[Run]:
        if self._ended_early:
            self._ended_early = False
            return iter(())
        return self._counted()

    def _counted(self) -> Iterator[Run]:
        runs, given = self._begin(), 0
        for run in runs:
            given += self._count(run)
            if given == self._elements:
                next(runs, None)  # nobody asks again, and the reader is to know that it is at the end
            yield run
        self._ended_early = 0 < given < self._elements  # without elements, `repeat` has ended by itself
