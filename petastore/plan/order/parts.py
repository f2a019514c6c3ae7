"""Fixed shards: each rank reads the same part of the data in every epoch. No I/O."""

from __future__ import annotations

import dataclasses
from typing import Self

from petastore.errors import NoDataAvailableError
from petastore.plan.order.visits import Rounds, spreads_evenly

__all__ = ["Parts"]

_LANES = (96, 48, 24, 12, 6)
"""Numbers of lanes from which one is chosen, descending.

A lane is one of the row-group sequences that an epoch interleaves. These numbers have many divisors, so lanes can often
be divided evenly among ranks."""

_MOST_OF_A_RANK = 8
"""Maximum number of row groups that a rank reads concurrently."""


@dataclasses.dataclass(frozen=True, slots=True)
class Parts:
    """Division of a dataset in file order into one part for each rank.

    The `Order` must have as many lanes as this object and must not permute row groups (it may permute rows).
    `last_batch` must be `even` or `drop`. Each rank then needs only its part of the dataset, and the numbers of rows of
    the other parts. All ranks still have the same number of batches.

    Example:
        >>> Parts.of(1003, ranks=2)
        Parts(rows=(501, 502), lanes=12)
        >>> Parts.of(1003, ranks=5)
        Parts(rows=(201, 201, 201, 200, 200), lanes=5)
    """

    rows: tuple[int, ...]
    """Number of rows of each rank's part; the numbers differ by at most one."""

    lanes: int
    """Number of lanes that the `Order` must have.

    A lane is one of the sequences of row groups that are read concurrently and interleaved."""

    @classmethod
    def of(cls, num_rows: int, *, ranks: int) -> Self:
        """Return the division of a number of rows into one part for each rank.

        Raises:
            NoDataAvailableError: There are fewer rows than ranks.
        """
        if num_rows < ranks:
            raise NoDataAvailableError(
                f"each rank must have at least one row, got {num_rows:,} row{'' if num_rows == 1 else 's'} for "
                f"{ranks:,} ranks. Use fewer ranks"
            )
        most = min(num_rows, ranks * _MOST_OF_A_RANK)
        lanes = next((lanes for lanes in _LANES if lanes <= most and spreads_evenly(lanes, ranks)), ranks)
        sizes = Rounds(num_rows, lanes).sizes.reshape(ranks, -1).sum(axis=1)
        return cls(tuple(sizes.tolist()), lanes)
