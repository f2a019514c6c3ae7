"""What was asked: which columns, in what order, for which shard, how often, and what becomes of the last batch. Pure.

A `PlanAsk` is the question, in which None lets the dataset choose; a `ReadRequest` is what is settled about one
dataset. Everything is validated here, where it is made; nothing is refused later in a worker.
"""

from __future__ import annotations

import dataclasses
import enum
import numbers
from collections.abc import Iterable
from typing import Any, Literal, TypeAlias, get_args

from petastore.errors import InvalidArgumentError
from petastore.plan.lanes import DEFAULT_SHUFFLE_BUFFER_BYTES
from petastore.schema.field import UnischemaField

__all__ = [
    "SHARDED_DEFAULT_SEED",
    "Fields",
    "Order",
    "OrderAsk",
    "PlanAsk",
    "ReadRequest",
    "Reshuffle",
    "Shard",
    "ShardWord",
    "Tail",
    "TailWord",
    "UnderWay",
    "known_word",
    "whole_number",
]

Fields: TypeAlias = Iterable[str | UnischemaField]
"""Columns that are asked for: names, regular expressions over whole names, or fields."""

TailWord: TypeAlias = Literal["even", "drop", "pad", "wrap"]
"""What becomes of the last global batch, in a word; see `Tail`."""

ShardWord: TypeAlias = Literal["auto"]
"""A shard in a word: that of this process, as engine and launcher say; `petastore.distributed` asks them."""

Reshuffle: TypeAlias = Literal["epoch", "static"]
"""When row groups are permuted anew; see `Order.reshuffle`."""

SHARDED_DEFAULT_SEED = 0
"""The seed of a sharded reader that was given none: ranks must agree on an order without asking each other."""


class Tail(enum.Enum):
    """What becomes of the rows that fill no whole global batch.

    With 11 rows, 2 ranks and batches of 2 rows a rank (a global batch is 4 rows), three rows are left over:

    | word   | last global batch    | rank 0    | rank 1    |
    |--------|----------------------|-----------|-----------|
    | even   | the 3 rows           | 1 row     | 2 rows    |
    | drop   | none                 |           |           |
    | pad    | 3 rows and 1 repeat  | 1 + 1     | 2         |
    | wrap   | 3 rows and the first | 2 rows    | 2 rows    |
    """

    _value_: TailWord

    EVEN = "even"
    """Every row once; each rank gets an equal share ±1 of what is left; fewer rows than ranks join the batch before."""

    DROP = "drop"
    """Only full batches; up to a global batch less one row is left out, other rows each epoch when shuffled."""

    PAD = "pad"
    """Full batches; repeats fill the last one and are False in the boolean column `valid`."""

    WRAP = "wrap"
    """Full batches; the epoch's first rows fill the last one."""

    @classmethod
    def parse(cls, last_batch: str | Tail) -> Tail:
        """The member of that name, which may be any text, such as an option of a command line.

        Raises:
            InvalidArgumentError: There is none.
        """
        return last_batch if isinstance(last_batch, cls) else cls(known_word(last_batch, TailWord, name="last_batch"))


def known_word(value: Any, words: Any, *, name: str, or_none: bool = False) -> Any:
    """`value`, refused where it is none of the words of a `Literal`, nor None where that is one.

    Raises:
        InvalidArgumentError: Naming the parameter as the user typed it, and the words.

    Example:
        >>> known_word("evn", TailWord, name="last_batch")
        Traceback (most recent call last):
        petastore.errors.InvalidArgumentError: last_batch='evn' is not known; it is one of 'even', 'drop', 'pad', 'wrap'
    """
    known = (None, *get_args(words)) if or_none else get_args(words)
    if value not in known:
        raise InvalidArgumentError(f"{name}={value!r} is not known; it is one of {', '.join(map(repr, known))}")
    return value


def whole_number(value: Any, *, name: str, least: int) -> int:
    """`value` as an int, refused below `least`; booleans and floats are no whole numbers.

    Raises:
        InvalidArgumentError: Naming the parameter as the user typed it.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise InvalidArgumentError(f"{name}={value!r}, but it must be a whole number of at least {least}")
    return int(value)


@dataclasses.dataclass(frozen=True, slots=True)
class Shard:
    """One of the equal parts into which ranks divide an epoch.

    Example:
        >>> Shard(2, 2)
        Traceback (most recent call last):
        petastore.errors.InvalidArgumentError: cur_shard=2 with shard_count=2: shards are numbered from 0 to 1
    """

    index: int = 0
    """This rank's shard, from 0."""

    count: int = 1
    """Shards altogether."""

    def __post_init__(self) -> None:
        count = whole_number(self.count, name="shard_count", least=1)
        index = whole_number(self.index, name="cur_shard", least=0)
        if index >= count:
            raise InvalidArgumentError(
                f"cur_shard={index} with shard_count={count}: shards are numbered from 0 to {count - 1}"
            )
        object.__setattr__(self, "count", count)
        object.__setattr__(self, "index", index)

    @classmethod
    def parse(cls, cur_shard: int | Shard | None, shard_count: int | None) -> Shard:
        """The shard of two numbers, or one that is given as it is; None and None mean the only one.

        Raises:
            InvalidArgumentError: One is given without the other, or the pair cannot be.
        """
        if isinstance(cur_shard, Shard):
            if shard_count is not None:
                raise InvalidArgumentError(
                    f"cur_shard={cur_shard} says the count, too; leave out shard_count={shard_count!r}"
                )
            return cur_shard
        if (cur_shard is None) != (shard_count is None):
            raise InvalidArgumentError(
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

    reshuffle: Reshuffle = "epoch"
    """`"epoch"`: row groups are permuted anew in each epoch. `"static"`: the first epoch's permutation stays, so that a
    rank keeps its row groups and a cache beside it stays useful; rows are permuted anew all the same."""

    dealt_to: int | None = dataclasses.field(default=None, repr=False)
    """For how many ranks row groups lie on the line so that few change hands when that number changes
    (`petastore.plan.order.dealing`); `"static"` orders that permute row groups may have that. None: they lie there by
    their hash, whatever the number of ranks."""

    def __post_init__(self) -> None:
        if isinstance(self.seed, bool) or not isinstance(self.seed, numbers.Integral):
            raise InvalidArgumentError(f"seed={self.seed!r}, but a seed is any whole number, or None for a fresh one")
        object.__setattr__(self, "seed", int(self.seed))
        known_word(self.reshuffle, Reshuffle, name="reshuffle")
        for name in ("lanes", "block_rows"):
            object.__setattr__(self, name, whole_number(getattr(self, name), name=name, least=1))
        if self.dealt_to is None:
            return
        object.__setattr__(self, "dealt_to", whole_number(self.dealt_to, name="dealt_to", least=1))
        if self.reshuffle != "static" or not self.shuffle_row_groups:
            raise InvalidArgumentError(
                f"dealt_to={self.dealt_to} with reshuffle={self.reshuffle!r} and shuffle_row_groups="
                f"{self.shuffle_row_groups}: only orders that permute row groups once can be dealt to ranks"
            )

    def as_dict(self) -> dict[str, Any]:
        """The same as a new dict of JSON values, in which `dealt_to` is left out where it is None."""
        said = dataclasses.asdict(self)
        if self.dealt_to is None:
            del said["dealt_to"]
        return said


@dataclasses.dataclass(frozen=True, slots=True)
class UnderWay:
    """An epoch that is finished in another order than those after it have."""

    epoch: int
    """The epoch, from 0."""

    order: Order
    """Its order."""


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

    last_batch: Tail = Tail.EVEN
    """What becomes of the last global batch."""

    chosen: frozenset[str] = frozenset()
    """Parts of `order` that nobody asked for by name: a state that is restored may bring its own."""

    under_way: UnderWay | None = None
    """The epoch that was under way when the number of ranks changed: its line was dealt to as many as there were."""

    def __post_init__(self) -> None:
        if self.epochs is not None:
            object.__setattr__(self, "epochs", whole_number(self.epochs, name="num_epochs", least=1))

    @property
    def epochs_in_words(self) -> str:
        """`epochs` for people."""
        return "endless" if self.epochs is None else f"{self.epochs:,} epoch{'' if self.epochs == 1 else 's'}"


@dataclasses.dataclass(frozen=True, slots=True)
class OrderAsk:
    """What is asked of the order of rows; what is None is chosen by what exists, `Order` says how."""

    seed: int | None = None
    """Any integer. None is a fresh one, or `SHARDED_DEFAULT_SEED` where there are several shards."""

    shuffle_row_groups: bool = True
    """Permute row groups, anew in each epoch."""

    shuffle_rows: bool = False
    """Permute rows, anew in each epoch."""

    shuffle_buffer_bytes: int = DEFAULT_SHUFFLE_BUFFER_BYTES
    """Bytes of stored cells that all ranks together keep for `shuffle_rows`."""

    lanes: int | None = None
    """Row groups that are read side by side."""

    block_rows: int | None = None
    """Rows of a lane that are permuted together."""

    reshuffle: Reshuffle | None = None
    """When row groups are permuted anew; None is `"static"` where column chunks are kept on the local disk, else
    `"epoch"`."""

    def __post_init__(self) -> None:
        whole_number(self.shuffle_buffer_bytes, name="shuffle_buffer_bytes", least=1)
        known_word(self.reshuffle, Reshuffle, name="reshuffle", or_none=True)

    @property
    def chosen(self) -> frozenset[str]:
        """Parts of the order that nobody asked for by name."""
        names = ("seed", "lanes", "block_rows", "reshuffle")
        return frozenset([*(name for name in names if getattr(self, name) is None), "dealt_to"])


@dataclasses.dataclass(frozen=True, slots=True)
class PlanAsk:
    """What is asked of a plan, whatever the dataset; `Dataset.planned` answers it.

    Example:
        >>> PlanAsk(last_batch=Tail.DROP).last_batch
        <Tail.DROP: 'drop'>
    """

    columns: Fields | None = None
    """Which columns; None is all."""

    order: OrderAsk = OrderAsk()
    """In what order."""

    shard: Shard = Shard()
    """For whom."""

    epochs: int | None = 1
    """How often; None is without end."""

    last_batch: Tail = Tail.EVEN
    """What becomes of the last global batch."""

    def __post_init__(self) -> None:
        if self.columns is not None and not isinstance(self.columns, (str, UnischemaField)):
            object.__setattr__(self, "columns", tuple(self.columns))  # an iterator gives its items once
