"""Loop over a `tf.data.Dataset` compiled by TensorFlow, as in `fit` and in training steps in a `tf.function`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from benchmarks.bench.workloads import Workload

__all__ = ["rows_of_steps"]

_CALLS_AN_EPOCH = 20


def rows_of_steps(dataset: Any, workload: Workload) -> Iterator[int]:
    """Rows that each call of the loop has had: of one batch first, then of a twentieth of an epoch.

    Args:
        dataset: Dicts of columns, without end.
        workload: Says how long an epoch is.
    """
    batches, key = iter(dataset), workload.key

    @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator, unused-ignore]
    def rows_of(batches: Any, steps: Any) -> Any:
        rows = tf.constant(0, tf.int64)
        for _ in tf.range(steps):
            rows += tf.shape(next(batches)[key], tf.int64)[0]
        return rows

    yield int(rows_of(batches, tf.constant(1)))
    steps = tf.constant(max(1, workload.rows // workload.batch // _CALLS_AN_EPOCH))
    while True:
        yield int(rows_of(batches, steps))
