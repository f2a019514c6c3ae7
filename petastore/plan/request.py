"""Plan request: columns, row order, shard, epochs and treatment of the last batch.

`PlanOptions` has the options that the user passed; for None, petastore chooses a value that fits the dataset.
`ReadRequest` has the resulting values for one dataset. All options are validated in this module, so an invalid option
raises an error when the reader is created, not later in a worker. `assert_agreed` raises an error if ranks have
different plans; without this check, they could deadlock in an all-reduce. No I/O.

A lane is a sequence of row groups; a batch has rows of all lanes. More lanes mix rows better, but need more memory. If
rows are shuffled, the default number of lanes (`shuffled_lanes`) depends only on the data and on
`shuffle_buffer_bytes`. The order is then the same for any number of ranks.
"""

from __future__ import annotations

import dataclasses
import enum
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict, get_args

import numpy as np
from numpy.typing import NDArray

from petastore.byte_sizes import ByteSize, byte_size
from petastore.errors import InvalidArgumentError
from petastore.inventory import Inventory
from petastore.plan.selection import Selection
from petastore.schema.field import UnischemaField

__all__ = [
    "DEFAULT_SHUFFLE_BUFFER_BYTES",
    "SHARDED_DEFAULT_SEED",
    "AllGather",
    "Fields",
    "LastBatch",
    "LastBatchWord",
    "Order",
    "OrderKwargs",
    "OrderOptions",
    "PlanOptions",
    "ReadRequest",
    "Reshuffle",
    "Rest",
    "Shard",
    "ShardWord",
    "UnderWay",
    "assert_agreed",
    "in_memory",
    "known_word",
    "shuffled_lanes",
    "whole_number",
]

DEFAULT_SHUFFLE_BUFFER_BYTES = 256 * 1024 * 1024
"""Default size of the shuffle buffer over all ranks, in bytes of stored cells."""

Fields: TypeAlias = Iterable[str | UnischemaField]
"""Requested columns: names, regular expressions over whole names, or fields."""

LastBatchWord: TypeAlias = Literal["even", "drop", "pad", "wrap"]
"""Names of the policies for the last global batch; see `LastBatch`."""

ShardWord: TypeAlias = Literal["auto"]
"""Value `"auto"` of `cur_shard`: detect the rank and world size of this process.

`petastore.distributed` detects them."""

Reshuffle: TypeAlias = Literal["epoch", "static"]
"""When row groups are permuted; see `Order.reshuffle`."""

SHARDED_DEFAULT_SEED = 0
"""Default seed of a sharded reader.

It is fixed, because ranks must agree on an order without communication."""


class LastBatch(enum.Enum):
    """Policy for the rows at the end of an epoch that do not fill a global batch.

    With 11 rows, 2 ranks and 2 rows per batch and rank (4 rows per global batch), 3 rows remain:

    | word   | last global batch    | rank 0    | rank 1    |
    |--------|----------------------|-----------|-----------|
    | even   | the 3 rows           | 1 row     | 2 rows    |
    | drop   | none                 |           |           |
    | pad    | 3 rows and 1 repeat  | 1 + 1     | 2         |
    | wrap   | 3 rows and the first | 2 rows    | 2 rows    |
    """

    _value_: LastBatchWord

    EVEN = "even"
    """Every row once; ranks share the remaining rows equally (±1).

    If fewer rows than ranks remain, they are added to the batch before."""

    DROP = "drop"
    """Only full batches; the remaining rows (less than a global batch) are left out.

    If the order changes from epoch to epoch, other rows are left out in each epoch."""

    PAD = "pad"
    """Full batches; the last one is filled with repeated rows.

    The boolean column `valid` is False for repeated rows."""

    WRAP = "wrap"
    """Full batches; the last one is filled with the first rows of the epoch."""

    @classmethod
    def parse(cls, last_batch: str | LastBatch) -> LastBatch:
        """Return the member with a given name, such as `"even"`, or the member itself.

        Raises:
            InvalidArgumentError: No member has this name.
        """
        return (
            last_batch if isinstance(last_batch, cls) else cls(known_word(last_batch, LastBatchWord, name="last_batch"))
        )


def known_word(value: Any, words: Any, *, name: str, or_none: bool = False) -> Any:
    """Check that `value` is one of the values of a `Literal` type, and return it.

    Args:
        value: Value to check.
        words: The `Literal` type.
        name: Name of the parameter, for the message.
        or_none: Whether None is also allowed.

    Raises:
        InvalidArgumentError: `value` is not an allowed value; the message names the parameter and the allowed values.

    Example:
        >>> known_word("evn", LastBatchWord, name="last_batch")
        Traceback (most recent call last):
        petastore.errors.InvalidArgumentError: last_batch must be one of 'even', 'drop', 'pad', 'wrap', got 'evn'
    """
    known = (None, *get_args(words)) if or_none else get_args(words)
    if value not in known:
        raise InvalidArgumentError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")
    return value


def whole_number(value: Any, *, name: str, least: int) -> int:
    """Check that `value` is an integer of at least `least`, and return it as an int.

    Booleans and floats raise an error.

    Raises:
        InvalidArgumentError: `value` is not an int of at least `least`; the message names the parameter.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise InvalidArgumentError(f"{name} must be an int of at least {least}, got {value!r}")
    return int(value)


@dataclasses.dataclass(frozen=True, slots=True)
class Shard:
    """A shard: the part of an epoch that one rank reads.

    Example:
        >>> Shard(2, 2)
        Traceback (most recent call last):
        petastore.errors.InvalidArgumentError: cur_shard must be from 0 to 1 with shard_count=2, got 2
    """

    index: int = 0
    """Number of this shard, from 0."""

    count: int = 1
    """Number of shards."""

    def __post_init__(self) -> None:
        count = whole_number(self.count, name="shard_count", least=1)
        index = whole_number(self.index, name="cur_shard", least=0)
        if index >= count:
            raise InvalidArgumentError(f"cur_shard must be from 0 to {count - 1} with shard_count={count}, got {index}")
        object.__setattr__(self, "count", count)
        object.__setattr__(self, "index", index)

    @classmethod
    def parse(cls, cur_shard: int | Shard | None, shard_count: int | None) -> Shard:
        """Return the shard for the arguments `cur_shard` and `shard_count` of a reader.

        None for both means a single shard with all rows.

        Raises:
            InvalidArgumentError: Only one of the two numbers was given, a number is out of range, or `shard_count` was
                given with a `Shard`.
        """
        if isinstance(cur_shard, Shard):
            if shard_count is not None:
                raise InvalidArgumentError(
                    f"shard_count must be left out with cur_shard={cur_shard}, which includes it, got {shard_count!r}"
                )
            return cur_shard
        if (cur_shard is None) != (shard_count is None):
            raise InvalidArgumentError(
                f"cur_shard and shard_count must be given together, got cur_shard={cur_shard!r} and "
                f"shard_count={shard_count!r}. Give both, or neither for all rows"
            )
        return cls() if cur_shard is None or shard_count is None else cls(cur_shard, shard_count)


@dataclasses.dataclass(frozen=True, slots=True)
class Order:
    """Options of the row order in an epoch.

    `petastore.plan.order.order` computes the order from them. Equal options and equal inventories give the same
    sequence of rows in each epoch, for any number of ranks.
    """

    seed: int
    """Seed of the order, any integer."""

    shuffle_row_groups: bool
    """Whether row groups are permuted."""

    shuffle_rows: bool
    """Whether rows are shuffled within blocks of row groups (`block_rows`).

    Each epoch has a new order."""

    lanes: int
    """Number of lanes, at least 1.

    A lane is one of the sequences of row groups that are read concurrently and interleaved in global batches."""

    block_rows: int
    """Block size in rows, at least 1; ignored unless `shuffle_rows` is True.

    In each lane (interleaved sequence of row groups), the row groups that begin within this number of rows are shuffled
    together."""

    reshuffle: Reshuffle = "epoch"
    """When row groups are permuted: `"epoch"` in each epoch, `"static"` only once.

    With `"static"`, each rank reads the same row groups in every epoch, so its local cache stays useful. Shuffled rows
    have a new order in each epoch in both cases."""

    dealt_to: int | None = dataclasses.field(default=None, repr=False)
    """Number of ranks to which row groups are assigned; None does not assign them.

    The assignment is such that few row groups change ranks when this number changes (`petastore.plan.order.line`).
    Requires `reshuffle="static"` and `shuffle_row_groups`."""

    def __post_init__(self) -> None:
        if isinstance(self.seed, bool) or not isinstance(self.seed, numbers.Integral):
            raise InvalidArgumentError(f"seed must be an int, or None for a random one, got {self.seed!r}")
        object.__setattr__(self, "seed", int(self.seed))
        known_word(self.reshuffle, Reshuffle, name="reshuffle")
        for name in ("lanes", "block_rows"):
            object.__setattr__(self, name, whole_number(getattr(self, name), name=name, least=1))
        if self.dealt_to is None:
            return
        object.__setattr__(self, "dealt_to", whole_number(self.dealt_to, name="dealt_to", least=1))
        if self.reshuffle != "static" or not self.shuffle_row_groups:
            raise InvalidArgumentError(
                f"dealt_to must be None unless shuffle_row_groups=True and reshuffle='static', got {self.dealt_to} "
                f"with reshuffle={self.reshuffle!r} and shuffle_row_groups={self.shuffle_row_groups}"
            )

    def as_dict(self) -> dict[str, Any]:
        """Return the options as a new dict of JSON values.

        The key `dealt_to` is omitted if its value is None.
        """
        values = dataclasses.asdict(self)
        if self.dealt_to is None:
            del values["dealt_to"]
        return values


@dataclasses.dataclass(frozen=True, slots=True)
class Rest:
    """Rest of the current epoch, if rows were excluded after the epoch began."""

    selection: Selection
    """Rows of the epoch that remain, without the excluded ones."""

    data_fingerprint: str
    """`Plan.data_fingerprint` of the plan with which the epoch began."""

    position: int
    """Number of rows of the epoch that were consumed before rows were excluded."""


@dataclasses.dataclass(frozen=True, slots=True)
class UnderWay:
    """Order of the current epoch, if the following epochs have another order."""

    epoch: int
    """Number of the epoch, from 0."""

    order: Order
    """Order of this epoch."""

    rest: Rest | None = None
    """Remaining rows of this epoch; None unless rows were excluded after it began."""


@dataclasses.dataclass(frozen=True, slots=True)
class ReadRequest:
    """Request for the rows of one dataset: columns, row order, shard and epochs."""

    columns: tuple[str, ...]
    """Columns to read, in output order."""

    order: Order
    """Options of the row order."""

    shard: Shard = Shard()
    """Shard of this rank."""

    epochs: int | None = 1
    """Number of epochs; None means endless."""

    last_batch: LastBatch = LastBatch.EVEN
    """Policy for the rows that do not fill the last global batch."""

    chosen: frozenset[str] = frozenset()
    """Names of the fields of `order` that the user did not set.

    A restored state may replace the values of these fields."""

    under_way: UnderWay | None = None
    """Order of the current epoch, if it differs from `order`; otherwise None.

    It differs if the number of ranks or the excluded rows changed in the middle of this epoch."""

    def __post_init__(self) -> None:
        if self.epochs is not None:
            object.__setattr__(self, "epochs", whole_number(self.epochs, name="num_epochs", least=1))

    @property
    def epochs_in_words(self) -> str:
        """Number of epochs as text for messages, such as `2 epochs` or `endless`."""
        return "endless" if self.epochs is None else f"{self.epochs:,} epoch{'' if self.epochs == 1 else 's'}"


class OrderKwargs(TypedDict, total=False):
    """Keyword arguments for the row order, with the names of `OrderOptions`."""

    seed: int | None
    shuffle_rows: bool
    shuffle_row_groups: bool
    shuffle_buffer_bytes: ByteSize
    interleave: int | None
    shuffle_block_rows: int | None
    reshuffle_each_epoch: bool | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OrderOptions:
    """Options of the row order: seed, shuffling and interleaving.

    Args: Shuffling
        seed: Seed of the row order; any integer. None draws a random seed, or uses seed 0 with `shard_count`, so that
            all ranks agree.
        shuffle_rows: Whether to shuffle rows within the shuffle buffer, in a new order each epoch.
        shuffle_row_groups: Whether to read row groups in random order; see also `reshuffle_each_epoch`.
        shuffle_buffer_bytes: Size of the shuffle buffer for `shuffle_rows`, in bytes or as text such as `"1GB"`: bytes
            of encoded cells, over all ranks together. A larger buffer mixes better.
        interleave: Number of row groups, over all ranks, that are read concurrently and interleaved. If None, it is
            derived from `shuffle_buffer_bytes` if rows are shuffled; otherwise it is one per rank and loader worker.
        shuffle_block_rows: Number of rows that are shuffled together in each interleaved sequence of row groups; None
            derives it from `shuffle_buffer_bytes`.
        reshuffle_each_epoch: Whether row groups get a new order in each epoch. With False, a rank reads the same row
            groups in every epoch, and most of them again after the number of ranks changes, so that its cache stays
            useful. None means False with a local disk cache, else True.
    """

    seed: int | None = None
    shuffle_rows: bool = False
    shuffle_row_groups: bool = True
    shuffle_buffer_bytes: ByteSize = DEFAULT_SHUFFLE_BUFFER_BYTES
    interleave: int | None = None
    shuffle_block_rows: int | None = None
    reshuffle_each_epoch: bool | None = None

    def __post_init__(self) -> None:
        byte_size(self.shuffle_buffer_bytes, name="shuffle_buffer_bytes")
        for name in ("interleave", "shuffle_block_rows"):
            if getattr(self, name) is not None:
                whole_number(getattr(self, name), name=name, least=1)
        for name in ("shuffle_rows", "shuffle_row_groups"):
            known_word(getattr(self, name), Literal[True, False], name=name)
        known_word(self.reshuffle_each_epoch, Literal[True, False], name="reshuffle_each_epoch", or_none=True)

    @property
    def buffer_bytes(self) -> int:
        """Value of `shuffle_buffer_bytes` in bytes."""
        return byte_size(self.shuffle_buffer_bytes, name="shuffle_buffer_bytes")

    @property
    def reshuffle(self) -> Reshuffle | None:
        """Value of `reshuffle_each_epoch` in the form of `Order.reshuffle`, or None."""
        if self.reshuffle_each_epoch is None:
            return None
        return "epoch" if self.reshuffle_each_epoch else "static"

    @property
    def chosen(self) -> frozenset[str]:
        """Names of the fields of `Order` for which petastore chooses a value.

        The user did not set these options.
        """
        options = {
            "seed": self.seed,
            "lanes": self.interleave,
            "block_rows": self.shuffle_block_rows,
            "reshuffle": self.reshuffle_each_epoch,
        }
        return frozenset([*(name for name, value in options.items() if value is None), "dealt_to"])


@dataclasses.dataclass(frozen=True, slots=True)
class PlanOptions:
    """Options of a plan that do not depend on the dataset; see `Dataset.planned`.

    Example:
        >>> PlanOptions(last_batch=LastBatch.DROP).last_batch
        <LastBatch.DROP: 'drop'>
    """

    columns: Fields | None = None
    """Columns to read; None means all."""

    order: OrderOptions = OrderOptions()
    """Options of the row order."""

    shard: Shard = Shard()
    """Shard of this rank."""

    epochs: int | None = 1
    """Number of epochs; None means endless."""

    last_batch: LastBatch = LastBatch.EVEN
    """Policy for the rows that do not fill the last global batch."""

    def __post_init__(self) -> None:
        if self.columns is not None and not isinstance(self.columns, (str, UnischemaField)):
            if not isinstance(self.columns, Iterable):
                raise InvalidArgumentError(
                    f"schema_fields must be a list of names or fields, got {self.columns!r:.200}"
                )
            object.__setattr__(self, "columns", tuple(self.columns))  # because an iterator can be consumed only once


_LANES = (1, 2, 4, 6, 12, 24, 48, 96)
"""Numbers of lanes (interleaved sequences of row groups) from which one is chosen.

If the number is divisible by the number of ranks, almost all row groups are read by one rank each."""

_GROUPS_A_LANE = 2
"""Number of row groups in memory per lane (interleaved sequence of row groups).

These are the current row group and the next one, which is prefetched."""

_PERMUTED_ROWS = 2**19
"""Maximum number of rows in all current blocks (rows that are shuffled together).

The limit exists because the first batch waits until all these blocks are shuffled."""


def in_memory(inventory: Inventory, rows: NDArray[np.int64]) -> Inventory:
    """Return an inventory that counts only the selected rows of each row group.

    For row groups without selected rows, `decoded_bytes` is 0. The bytes of the other row groups do not change, because
    shuffling keeps whole row groups in memory.

    Args:
        inventory: Inventory of the dataset.
        rows: Selected rows of each row group, shape (groups,).
    """
    return dataclasses.replace(inventory, rows=rows, decoded_bytes=np.where(rows > 0, inventory.decoded_bytes, 0))


def shuffled_lanes(
    inventory: Inventory, *, shuffle_buffer_bytes: int, lanes: int | None, block_rows: int | None
) -> tuple[int, int]:
    """Return the number of lanes and the number of rows per block, for shuffled rows.

    Lanes are sequences of row groups that are interleaved; a block is the part of a lane that is shuffled together.
    With the same memory, many lanes of short blocks mix better than few lanes of long blocks. Memory is therefore used
    for lanes first, and for blocks of several row groups only if there are enough lanes.

    Args:
        inventory: Inventory of the dataset.
        shuffle_buffer_bytes: Maximum bytes of row groups in memory, over all ranks.
        lanes: Requested number of lanes; None lets this function choose it.
        block_rows: Requested number of rows per block; None lets this function choose it.

    Returns:
        Number of lanes, and rows per block, both at least 1.

    Example:
        >>> shuffled_lanes(Inventory.of_rows([1000] * 600), shuffle_buffer_bytes=10**6, lanes=None, block_rows=None)
        (48, 1604)
    """
    filled = int(np.count_nonzero(inventory.rows))
    group_rows = -(-inventory.num_rows // filled) if filled else 1
    row_bytes = max(float(inventory.decoded_bytes.sum()) / max(inventory.num_rows, 1), 1.0)
    groups_in_memory = shuffle_buffer_bytes / (group_rows * row_bytes)
    if lanes is None:
        most = min(filled, groups_in_memory / _GROUPS_A_LANE)
        lanes = max([number for number in _LANES if number <= most], default=1)
    if block_rows is None:
        rows_in_memory = min(int(groups_in_memory * group_rows), _PERMUTED_ROWS)
        block_rows = max(rows_in_memory // lanes - group_rows, 1)
    return lanes, block_rows


AllGather = Callable[[Mapping[str, Any]], Sequence[Mapping[str, Any]]]
"""Function that gathers a value from all ranks, in the order of ranks.

It works like an `all_gather` of small picklable objects."""


def assert_agreed(mine: Mapping[str, Any], all_gather: AllGather) -> None:
    """Raise an error on every rank if ranks have different plans or the same shard.

    Call this function on every rank.

    Args:
        mine: This rank's values from `RankPlan.facts`, small and picklable, with `cur_shard` and `shard_count`. All
            values except `cur_shard` must be equal on all ranks.
        all_gather: Function that returns the values of all ranks, such as `petastore.distributed.all_gather`, which
            uses the initialized framework.

    Raises:
        InvalidArgumentError: Two ranks have different plans, or the same shard; the message has the different values,
            or the shards of all ranks.

    Example:
        >>> facts = [{"seed": rank, "shard_count": 2, "cur_shard": rank} for rank in range(2)]
        >>> assert_agreed(facts[0], lambda mine: facts)
        Traceback (most recent call last):
        petastore.errors.InvalidArgumentError: all ranks must plan the same data, got seed is 0 on rank 0 and 1 on rank
            1. Pass the same arguments on every rank
    """
    everybody = [dict(facts) for facts in all_gather(mine)]
    shards = [facts.pop("cur_shard", None) for facts in everybody]
    differences = [
        f"{name} is {everybody[0].get(name)!r} on rank 0 and {facts.get(name)!r} on rank {rank}"
        for rank, facts in enumerate(everybody)
        for name in everybody[0]
        if facts.get(name) != everybody[0][name]
    ]
    if differences:
        more = f" (and {len(differences) - 3:,} more)" if len(differences) > 3 else ""
        raise InvalidArgumentError(
            f"all ranks must plan the same data, got {'; '.join(differences[:3])}{more}. Pass the same arguments on "
            "every rank"
        )
    count = mine["shard_count"]
    if sorted(map(str, shards)) != sorted(map(str, range(count))):
        raise InvalidArgumentError(
            f"ranks must have the shards 0 to {count - 1}, each once, got {shards} in the order of ranks. Take "
            "cur_shard and shard_count from the launcher's rank and world size"
        )
