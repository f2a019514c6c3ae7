"""What a training function is given: its rank's rows on the disk of its host."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final, Unpack

from petastore.errors import InvalidArgumentError
from petastore.front import make_reader
from petastore.plan.request import Shard, Tail
from petastore.readers.reader import Reader

if TYPE_CHECKING:
    from petastore.readers.arguments import ReaderArguments

__all__ = ["LocalRows"]

_SETTLED: Final = {
    "dataset_url": "the rows are those of the DataFrame",
    "cur_shard": "each rank has its rows already",
    "shard_count": "each rank has its rows already",
    "lanes": "how rows were dealt to hosts settles it",
    "rowgroup_selector": "each rank would keep other numbers of rows; filter the DataFrame",
    "predicate": "each rank would keep other numbers of rows; filter the DataFrame",
    "filters": "each rank would keep other numbers of rows; filter the DataFrame",
}
"""Parameters of `make_reader` that a reader of these rows cannot be given, and why."""


@dataclasses.dataclass(frozen=True, slots=True)
class LocalRows:
    """The rows of this rank, as a part of the DataFrame's rows, which lie on the hosts of all ranks. Picklable.

    Example:
        >>> LocalRows("/tmp/petastore-x1", Shard(1, 2), num_rows=1003, lanes=12)
        LocalRows(rank 1 of 2, 1,003 rows in all, at /tmp/petastore-x1)
    """

    url: str
    """A dataset on the local disk, of whose files only this rank's are there. It is deleted when the function ends."""

    shard: Shard
    """Which rank this is, of how many."""

    num_rows: int
    """Rows of all ranks."""

    lanes: int
    """Of the order in which readers give the rows; see `petastore.plan.order.parts`."""

    restarts: int = 0
    """How often training was begun before."""

    def __repr__(self) -> str:
        return f"LocalRows(rank {self.shard.index} of {self.shard.count}, {self.num_rows:,} rows in all, at {self.url})"

    def make_reader(self, **options: Unpack[ReaderArguments]) -> Reader:
        """A reader of this rank's rows, with the same number of batches on every rank.

        Each row is given to one rank, once an epoch. The rows of a rank stay with it; `shuffle_rows=True` permutes
        them anew in each epoch. Batches of its loaders are equal on all ranks to a row.

        Args:
            **options: Of `petastore.make_reader`, but those that say which rows there are. `shuffle_row_groups` is
                False, and `last_batch` is `"even"` or `"drop"`.

        Raises:
            InvalidArgumentError: An option cannot be, and why.
        """
        for name, value in options.items():
            if name in _SETTLED:
                raise InvalidArgumentError(
                    f"{name}={value!r} cannot be given to a reader of LocalRows: {_SETTLED[name]}"
                )
        if options.get("shuffle_row_groups"):
            raise InvalidArgumentError(
                "shuffle_row_groups=True cannot be given to a reader of LocalRows: row groups stay on the hosts where "
                "they are. shuffle_rows=True permutes the rows of each rank"
            )
        last_batch = Tail.parse(options.get("last_batch", "even"))
        if last_batch not in (Tail.EVEN, Tail.DROP):
            raise InvalidArgumentError(
                f"last_batch={last_batch.value!r} cannot be given to a reader of LocalRows: it repeats rows of other "
                "ranks, which lie on other hosts. It is 'even', which gives each row once, or 'drop'"
            )
        settled: ReaderArguments = {"shuffle_row_groups": False, "lanes": self.lanes, "cur_shard": self.shard}
        return make_reader(self.url, **(options | settled))
