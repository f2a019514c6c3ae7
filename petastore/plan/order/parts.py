"""Which rows each rank has where ranks keep what is theirs: the dataset is cut once, into a part for each. Pure."""

from __future__ import annotations

import dataclasses
from typing import Self

from petastore.errors import NoDataAvailableError
from petastore.plan.order.visits import Rounds, spreads_evenly

__all__ = ["Parts"]

_LANES = (96, 48, 24, 12, 6)
"""Numbers of lanes that spread evenly over each of their divisors, most first."""

_MOST_OF_A_RANK = 8
"""Row groups that a rank reads side by side, at most."""


@dataclasses.dataclass(frozen=True, slots=True)
class Parts:
    """How the rows of a dataset are cut, in file order, so that each rank's batches take from its own part alone.

    That holds for orders that permute no row groups and have these lanes, whether they permute rows or not, and for
    the tails `even` and `drop`: then each rank needs no more of the dataset than its part, and knows of the others how
    many rows they have. All ranks have the same number of batches all the same.

    Example:
        >>> Parts.of(1003, ranks=2)
        Parts(rows=(501, 502), lanes=12)
        >>> Parts.of(1003, ranks=5)
        Parts(rows=(201, 201, 201, 200, 200), lanes=5)
    """

    rows: tuple[int, ...]
    """Rows of each rank's part, in the order of ranks; they differ by at most one."""

    lanes: int
    """Lanes of the order."""

    @classmethod
    def of(cls, num_rows: int, *, ranks: int) -> Self:
        """The parts of so many rows.

        Raises:
            NoDataAvailableError: There are fewer rows than ranks.
        """
        if num_rows < ranks:
            raise NoDataAvailableError(
                f"{num_rows:,} row{'' if num_rows == 1 else 's'} cannot be shared by {ranks:,} ranks: each needs one"
            )
        most = min(num_rows, ranks * _MOST_OF_A_RANK)
        lanes = next((lanes for lanes in _LANES if lanes <= most and spreads_evenly(lanes, ranks)), ranks)
        sizes = Rounds(num_rows, lanes).sizes.reshape(ranks, -1).sum(axis=1)
        return cls(tuple(sizes.tolist()), lanes)
