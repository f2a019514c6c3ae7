"""Which rows go from which rank to which, so that each has its part. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from petastore.errors import InvalidArgumentError

__all__ = ["Move", "moves"]


@dataclasses.dataclass(frozen=True, slots=True)
class Move:
    """Some of a rank's last rows become another's."""

    giver: int
    taker: int
    rows: int


def moves(there: Sequence[int], wanted: Sequence[int]) -> list[Move]:
    """The fewest rows that have to move, ranks in their order.

    Args:
        there: Rows that each rank has.
        wanted: Rows that each is to have; as many in all.

    Raises:
        InvalidArgumentError: The sums differ.

    Example:
        >>> moves([10, 0, 2], [4, 4, 4])
        [Move(giver=0, taker=1, rows=4), Move(giver=0, taker=2, rows=2)]
    """
    if sum(there) != sum(wanted) or len(there) != len(wanted):
        raise InvalidArgumentError(
            f"{sum(there):,} rows of {len(there)} ranks cannot become {sum(wanted):,} of {len(wanted)}"
        )
    missing = [[rank, want - have] for rank, (have, want) in enumerate(zip(there, wanted, strict=True)) if want > have]
    found = []
    for rank, (have, want) in enumerate(zip(there, wanted, strict=True)):
        spare = have - want
        while spare > 0:
            taker, lacks = missing[0]
            rows = min(spare, lacks)
            found.append(Move(rank, taker, rows))
            spare -= rows
            missing[0][1] -= rows
            if rows == lacks:
                missing.pop(0)
    return found
