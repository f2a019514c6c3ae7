"""What was asked: which columns, in what order, for which shard, how often, and what becomes of the last batch. Pure.

Everything is validated here, where it is made; nothing is refused later in a worker.
"""

from __future__ import annotations

import dataclasses
import enum
import numbers
from typing import Any

from petastore.errors import RequestError

__all__ = ["SHARDED_DEFAULT_SEED", "Order", "ReadRequest", "Shard", "Tail"]

SHARDED_DEFAULT_SEED = 0
"""The seed of a sharded reader that was given none: ranks must agree on an order without asking each other."""


class Tail(enum.Enum):
    """What becomes of the rows that fill no whole global batch.

    With 11 rows, 2 ranks and batches of 2 rows a rank (a global batch is 4 rows), three rows are left over:

    | tail   | last global batch    | rank 0    | rank 1    |
    |--------|----------------------|-----------|-----------|
    | even   | the 3 rows           | 1 row     | 2 rows    |
    | drop   | none                 |           |           |
    | pad    | 3 rows and 1 repeat  | 1 + 1     | 2         |
    | wrap   | 3 rows and the first | 2 rows    | 2 rows    |
    """

    EVEN = "even"
    """Every row once; each rank gets an equal share ±1 of what is left; fewer rows than ranks join the batch before."""

    DROP = "drop"
    """Only full batches; up to a global batch less one row is left out, other rows each epoch when shuffled."""

    PAD = "pad"
    """Full batches; repeats fill the last one and are False in the boolean column `valid`."""

    WRAP = "wrap"
    """Full batches; the epoch's first rows fill the last one."""

    @classmethod
    def parse(cls, tail: str | Tail) -> Tail:
        """The tail of that name.

        Raises:
            RequestError: There is none.
        """
        try:
            return cls(tail)
        except ValueError:
            names = ", ".join(repr(choice.value) for choice in cls)
            raise RequestError(f"tail={tail!r} is not known; it is one of {names}") from None


def whole_number(value: Any, *, name: str, least: int) -> int:
    """`value` as an int, refused below `least`; booleans and floats are no whole numbers.

    Raises:
        RequestError: Naming the parameter as the user typed it.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise RequestError(f"{name}={value!r}, but it must be a whole number of at least {least}")
    return int(value)


@dataclasses.dataclass(frozen=True, slots=True)
class Shard:
    """One of the equal parts into which ranks divide an epoch.

    Example:
        >>> Shard(2, 2)
        Traceback (most recent call last):
        petastore.errors.RequestError: cur_shard=2 with shard_count=2: shards are numbered from 0 to 1
    """

    index: int = 0
    """This rank's shard, from 0."""

    count: int = 1
    """Shards altogether."""

    def __post_init__(self) -> None:
        count = whole_number(self.count, name="shard_count", least=1)
        index = whole_number(self.index, name="cur_shard", least=0)
        if index >= count:
            raise RequestError(f"cur_shard={index} with shard_count={count}: shards are numbered from 0 to {count - 1}")
        object.__setattr__(self, "count", count)
        object.__setattr__(self, "index", index)

    @classmethod
    def parse(cls, cur_shard: int | None, shard_count: int | None) -> Shard:
        """The shard of a reader's two parameters; None and None mean the only one.

        Raises:
            RequestError: One is given without the other, or the pair cannot be.
        """
        if (cur_shard is None) != (shard_count is None):
            raise RequestError(
                f"cur_shard={cur_shard!r} and shard_count={shard_count!r}: give both, or neither for all rows"
            )
        return cls() if cur_shard is None or shard_count is None else cls(cur_shard, shard_count)


@dataclasses.dataclass(frozen=True, slots=True)
class Order:
    """How the rows of an epoch are ordered; `petastore.plan.order.order` turns it into positions.

    Two equal orders over equal inventories visit the rows equally, whatever the number of ranks.
    """

    seed: int
    """Any integer; 0 is one like the others."""

    shuffle_row_groups: bool
    """Whether row groups are permuted, anew in each epoch."""

    shuffle_rows: bool
    """Whether rows are permuted inside the blocks of a lane, anew in each epoch."""

    lanes: int
    """Equal parts of the epoch that are read side by side; global batches take from each in turn. At least 1."""

    block_rows: int
    """Rows within which the row groups of a lane begin that are permuted together; at least 1. Without meaning unless
    `shuffle_rows`."""

    reshuffle: str = "epoch"
    """`"epoch"`: row groups are permuted anew in each epoch. `"static"`: the first epoch's permutation stays, so that a
    rank keeps its row groups and a cache beside it stays useful; rows are permuted anew all the same."""

    def __post_init__(self) -> None:
        if isinstance(self.seed, bool) or not isinstance(self.seed, numbers.Integral):
            raise RequestError(f"seed={self.seed!r}, but a seed is any whole number, or None for a fresh one")
        object.__setattr__(self, "seed", int(self.seed))
        if self.reshuffle not in ("epoch", "static"):
            raise RequestError(f"reshuffle={self.reshuffle!r} is not known; it is one of 'epoch', 'static'")
        for name in ("lanes", "block_rows"):
            object.__setattr__(self, name, whole_number(getattr(self, name), name=name, least=1))


@dataclasses.dataclass(frozen=True, slots=True)
class ReadRequest:
    """What was asked of a dataset."""

    columns: tuple[str, ...]
    """Columns to read, in the order that rows have."""

    order: Order
    """In what order."""

    shard: Shard = Shard()
    """For whom."""

    epochs: int | None = 1
    """How often; None is without end."""

    tail: Tail = Tail.EVEN
    """What becomes of the last global batch."""

    chosen: frozenset[str] = frozenset()
    """Parts of `order` that nobody asked for by name: a state that is restored may bring its own."""

    def __post_init__(self) -> None:
        if self.epochs is not None:
            object.__setattr__(self, "epochs", whole_number(self.epochs, name="num_epochs", least=1))
