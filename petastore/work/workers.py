"""How a plan is run: options that change the speed, never the answer."""

from __future__ import annotations

import dataclasses
import functools
import logging
from typing import Literal, TypeAlias

from petastore.decoding.cell_sizes import DEFAULT_MAX_CELL_BYTES
from petastore.plan.request import known_word, whole_number
from petastore.storage.row_groups.dictionaries import MOST_BYTES
from petastore.work import InlinePool, Pool, ThreadPool
from petastore.work.thread import available_cpus

__all__ = ["DEFAULT_MAX_CELL_BYTES", "PoolType", "Workers"]

PoolType: TypeAlias = Literal["thread", "process", "dummy"]
"""Who does the work of a reader, in a word; see `Workers.kind`."""

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Workers:
    """Who does the work of a reader.

    Example:
        >>> Workers("dummy").pool().workers
        0
        >>> Workers("fibre")
        Traceback (most recent call last):
        petastore.errors.InvalidArgumentError: reader_pool_type='fibre' is not known; it is one of 'thread', 'process',
        'dummy'
    """

    kind: PoolType = "thread"
    """`"thread"`, `"process"` (threads too, but functions of transforms in processes), or `"dummy"`: everything in the
    thread that iterates."""

    count: int | None = None
    """Tasks that run at a time, or processes for functions of transforms; None is one for each CPU that this process
    may use."""

    memory_budget: int | None = None
    """Bytes that row groups at hand and batches on their way may take; None is as many as are useful."""

    max_cell_bytes: int | None = DEFAULT_MAX_CELL_BYTES
    """Bytes that one cell may take once decoded; None is no limit."""

    def __post_init__(self) -> None:
        known_word(self.kind, PoolType, name="reader_pool_type")
        if self.memory_budget is not None:
            budget = whole_number(self.memory_budget, name="memory_budget", least=1)
            object.__setattr__(self, "memory_budget", budget)
        if self.max_cell_bytes is not None:
            most = whole_number(self.max_cell_bytes, name="max_cell_bytes", least=1)
            object.__setattr__(self, "max_cell_bytes", most)
        if self.count is not None:
            object.__setattr__(self, "count", whole_number(self.count, name="workers_count", least=1))

    @property
    def most_copied_bytes(self) -> int:
        """What the rows of a column of a row group may take that the file holds as a dictionary, each value once."""
        return MOST_BYTES if self.memory_budget is None else self.memory_budget // 4

    @property
    def at_a_time(self) -> int:
        """Tasks that run at a time; 0 where they run in the consumer's thread."""
        return 0 if self.kind == "dummy" else self.count or available_cpus()

    def pool(self) -> Pool:
        """A pool for work without functions of transforms, open; whoever asks for it closes and joins it."""
        return InlinePool() if self.kind == "dummy" else ThreadPool(self.count or available_cpus())

    def say_that_threads_will_do(self) -> None:
        """Logs, once a process, that a process pool is a thread pool where no function is there to run in processes."""
        if self.kind == "process":
            _say_that_threads_will_do()


@functools.cache
def _say_that_threads_will_do() -> None:
    _log.info(
        "reader_pool_type='process' runs the functions of transforms in processes; this reader has none, and threads "
        "do all of its work"
    )
