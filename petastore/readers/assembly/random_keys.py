"""Random keys: what the random generator of each row of a span follows from."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from petastore.plan.order.mix import mix_array
from petastore.plan.plan import Span
from petastore.readers.assembly.encoded import Origin

__all__ = ["random_keys"]


def random_keys(span: Span, origin: Origin) -> NDArray[np.uint64]:
    """Return the key of each row of a span, which follows from seed, epoch, row group and row.

    So it depends neither on the batch that the row is in, nor on the rank, nor on who calls the transform.

    Args:
        span: The rows.
        origin: The row groups and rows of the dataset that they are.

    Returns:
        Shape (rows, 2): a hash of seed, epoch and row group, and the row inside the row group.
    """
    groups, rows = origin(span.groups, span.rows)
    streams = span.random_streams()
    keys = np.empty((len(rows), 2), dtype=np.uint64)
    for stream in np.unique(streams).tolist():
        here = streams == stream
        keys[here, 0] = mix_array(stream, groups[here].astype(np.uint64))
    keys[:, 1] = rows
    return keys
