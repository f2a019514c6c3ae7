"""Loading: how the row groups of a pass are read, one by one, by several workers, or several small ones together."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from petastore.errors import DecodeError
from petastore.inventory import Inventory
from petastore.plan.unit import ReadUnit
from petastore.readers.execution.memory import Memory
from petastore.readers.loaded.arena import Arena
from petastore.readers.loaded.loader import RowGroupLoader
from petastore.readers.loaded.row_group import LoadedRowGroup
from petastore.schema.unischema import Unischema
from petastore.storage.row_groups.asked_columns import Part
from petastore.storage.row_groups.open_files import OpenFiles
from petastore.storage.row_groups.verified import Verified
from petastore.work import Pool
from petastore.work.together import together

__all__ = ["Loading", "Loads", "Readable"]


class Readable(Protocol):
    """What a reader needs of a dataset: a `Dataset`, or several behind one."""

    @property
    def url(self) -> str:
        """Where it lies, for people."""

    @property
    def schema(self) -> Unischema:
        """What a row is."""

    @property
    def inventory(self) -> Inventory:
        """What exists; row groups are numbered as the plan numbers them."""

    def read_in_parts(self, unit: ReadUnit, parts: Sequence[Part], *, files: OpenFiles | None = None) -> Iterator[Any]:
        """The stored cells of a work item, some columns after the other: `pyarrow.Table`s with one chunk a column."""

    def read_together(self, units: Sequence[ReadUnit], parts: Sequence[Part]) -> Iterator[Any]:
        """Several small work items with one loader: of each part one table, with the rows of all."""

    def partition_values(self, columns: Sequence[str]) -> Mapping[str, Any]:
        """Of each partition column among some columns: its cell for each row group, as one `pyarrow.Array`."""


@dataclasses.dataclass(frozen=True, eq=False)
class Loading:
    """How row groups are loaded."""

    loader_of: Callable[[int], RowGroupLoader]
    """Who takes in a row group, given its number."""

    memory: Memory
    """Where they are kept."""

    files_of_pass: Callable[[], OpenFiles]
    """Makes what keeps files open during a pass."""

    @classmethod
    def of(cls, loader_of: Callable[[int], RowGroupLoader], memory: Memory, *, most_idle: int | None = None) -> Loading:
        """Loading that remembers from pass to pass which files were found right.

        Args:
            loader_of: Who takes in a row group, given its number.
            memory: Where they are kept.
            most_idle: Files that stay open while nobody reads them; None is as many as usual.
        """
        idle = {} if most_idle is None else {"most_idle": most_idle}
        return cls(loader_of, memory, functools.partial(OpenFiles, verified=Verified(), **idle))


class Loads:
    """Loads the row groups of one pass. Thread-safe.

    Tasks hold this and not the reader: a worker must never be the last one to hold it, and so end it.

    Args:
        source: Where row groups are.
        unit_of: `Plan.unit`.
        loading: How they are loaded.
        arena: Where they stand together; None where they are arrays of their own.
        pool: Whose workers divide the work on a large one.
    """

    def __init__(
        self,
        source: Readable,
        unit_of: Callable[[int], ReadUnit],
        loading: Loading,
        arena: Arena | None,
        pool: Pool,
    ) -> None:
        self._source, self._unit_of, self._loader_of, self._arena = source, unit_of, loading.loader_of, arena
        self._files = loading.files_of_pass()
        self._workers = pool.workers
        # Before what waits: somebody is waiting for the rest of a row group that was begun.
        self._submit = functools.partial(pool.submit, priority=-1)

    def load(self, group: int, read_order: NDArray[np.int64] | None) -> LoadedRowGroup | Future[LoadedRowGroup]:
        """A row group, or the future of it where other workers are still at it.

        Args:
            group: Its number.
            read_order: Its rows in the order in which they will be wanted; None is that of the file.
        """
        unit = self._unit_of(group)
        read = functools.partial(self._source.read_in_parts, unit, files=self._files)
        loading = self._loader_of(group).loading(unit.rows[1], read_order, read, self._arena, most=self._workers)
        tasks = [functools.partial(_placed, task, unit) for task in loading.tasks]
        if len(tasks) == 1:
            tasks[0]()
            return loading.finish()
        made = together(tasks, loading.finish, self._submit)
        return made.result() if made.done() else made

    def load_together(self, asked: Sequence[tuple[int, NDArray[np.int64] | None]]) -> list[LoadedRowGroup] | None:
        """Several small row groups, each with its read_order; None where they have to be loaded one by one."""
        groups = [group for group, _ in asked]
        loader = self._loader_of(groups[0])
        is_plain = type(loader) is RowGroupLoader and all(self._loader_of(group) is loader for group in groups)
        if self._arena is not None or not is_plain or any(read_order is not None for _, read_order in asked):
            return None
        units = [self._unit_of(group) for group in groups]
        read = functools.partial(self._source.read_together, units)
        return loader.load_together([unit.rows[1] for unit in units], read)

    def close(self) -> None:
        """Closes files, as soon as nobody reads them."""
        self._files.close()


def _placed(task: Callable[[], None], unit: ReadUnit) -> None:
    """Runs a task that reads a row group; what it raises says of which file."""
    try:
        task()
    except DecodeError as problem:
        raise problem.at(file=unit.file.path, row_group=unit.row_group) from problem.__cause__
