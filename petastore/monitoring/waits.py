"""Wait meter: how long a consumer waited for each span (consecutive batches), and for which stage of its preparation.

Several threads work at the same time, so the total time of a stage does not show how long the consumer waited for it.
Each moment of a wait is therefore divided equally among the stages in which threads worked for the awaited span at that
moment. If no thread worked for this span, the moment is divided among the stages of all threads.

If a reader yields many spans per second, only some of its waits are divided, and the other waits are assumed to have
the same proportions, so that the cost stays below a fixed share of the time.
"""

from __future__ import annotations

import array
import collections
import functools
import operator
import time
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from petastore.monitoring.activity import STAGES, Segment, Segments, Stage
from petastore.monitoring.diagnosis import Counters

__all__ = ["Listener", "RowGroups", "WaitMeter", "attributed", "timed"]


Listener: TypeAlias = "Callable[[WaitMeter, Sequence[Segment], float, float], object]"
"""Function `listener(meter, segments, began, ended)` that the consumer's thread calls after each wait.

`segments` are the time intervals that threads have logged since the previous wait. `began` and `ended` are the begin
and end of the wait."""

_SHORTEST_S = 20e-6
"""Minimum seconds of a wait that is attributed to stages; in a shorter wait, the batches were already assembled."""


class RowGroups(Protocol):
    """Interface of the row groups of a dataset, such as an `Inventory`."""

    @property
    def files(self) -> Sequence[Any]:
        """Files with a `path`."""

    @property
    def file(self) -> Any:
        """Index of each row group's file, shape (row groups,)."""

    @property
    def rows(self) -> Any:
        """Number of rows of each row group, shape (row groups,)."""


def attributed(
    segments: Sequence[Segment], began: float, ended: float, number: int, groups: Container[int]
) -> dict[Stage, float]:
    """Return the seconds of a wait by stage, divided among threads; time without any working thread is omitted.

    Args:
        segments: Logged time intervals of all threads.
        began: Begin of the wait.
        ended: End of the wait.
        number: Number of the awaited span (consecutive batches).
        groups: Row groups that the span needs.

    Example:
        >>> segments = [(0, 6, "storage", (4,), 1), (6, 7, "assembly", 1, 1), (0, 9, "copy", 2, 2)]
        >>> attributed(segments, 1, 9, number=1, groups={4})
        {'storage': 5.0, 'assembly': 1.0, 'copy': 2.0}
    """
    changes: list[tuple[float, int, bool, Stage]] = []
    for since, until, stage, owner, _ in segments:
        if until > began and since < ended:
            is_own = owner == number if isinstance(owner, int) else owner[0] in groups
            changes += (max(since, began), 1, is_own, stage), (min(until, ended), -1, is_own, stage)
    changes.sort(key=operator.itemgetter(0))
    # threads: number of threads in each stage from one change to the next, that work for other spans and for this one
    threads, working = (dict.fromkeys(STAGES, 0), dict.fromkeys(STAGES, 0)), [0, 0]
    seconds, at = dict.fromkeys(STAGES, 0.0), began
    for now, change, is_own, stage in changes:
        active = working[True] > 0
        if now > at and working[active]:
            share = (now - at) / working[active]
            for each, count in threads[active].items():
                seconds[each] += share * count
        threads[is_own][stage] += change
        working[is_own] += change
        at = now
    return {stage: found for stage, found in seconds.items() if found > 0}


_COST_SHARE = 0.002
"""Maximum share of the time that attributing waits takes."""

_MOST_SEGMENTS = 1000
"""Maximum number of logged time intervals that are kept for a later wait."""

_COST_S, _COST_OF_SEGMENT_S = 20e-6, 4e-6
"""Estimated seconds to divide a wait among stages: per wait, and in addition per logged time interval."""

_FIRST_CREDIT_S, _MOST_CREDIT_S = 0.3e-3, 50e-3
"""Time credit in seconds for dividing waits among stages: at the start of an iteration, and the maximum.

The credit grows by `_COST_SHARE` of the elapsed time. A wait is divided only if the credit covers the estimated cost
of dividing it."""


class WaitMeter:
    """Counters of one iteration over a reader. The consumer's thread writes; any thread may call `counters`.

    Time is counted from the first batches on, so that shares do not depend on how long workers took to start.

    Args:
        row_groups: Row groups of the dataset.
        counts_start: Whether the wait for the first batches is counted; False only for a reader's first iteration.
        listeners: Functions called in the consumer's thread after each wait, with the meter, all new segments, and
            begin and end of the wait.
        clock: Function that returns seconds.
    """

    def __init__(
        self,
        row_groups: RowGroups | None = None,
        *,
        counts_start: bool = False,
        listeners: list[Listener] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.log: Segments = collections.deque()
        """Log of the workers' stages."""
        self.waited_s = 0.0
        """Seconds that the consumer has waited for spans (groups of consecutive batches), including the first one."""
        self.clock = clock
        """Function that returns seconds."""
        self.row_groups_loaded = self.spans_ahead = 0
        """Number of row groups whose load was submitted, and maximum number of spans (groups of consecutive batches) in
        preparation."""
        self.listeners: list[Listener] = [] if listeners is None else listeners
        """Functions called after each wait; all iterations over a reader share this list."""
        self.rows = 0
        """Number of rows that the consumer has received."""
        self.is_over = False
        """Whether the end of the last epoch was reached."""
        self._row_groups, self._counts_start = row_groups, counts_start
        self._begun = self._last = self._startup_s = 0.0
        self._waits: dict[Stage, float] = {}  # seconds of waits for batches that were attributed to each stage
        self._waited_s = self._attributed_s = 0.0  # seconds of all waits for batches, and of the attributed waits
        self._first_wait: tuple[Sequence[Segment], float, float, int, Container[int]] | None = None
        self._pending: dict[Stage, float] = {}
        self._own: dict[Stage, float] = {}  # seconds of stages in the consumer's thread
        self._credit_s = _FIRST_CREDIT_S
        self._ready = self._spans = self._rows_released = 0
        files = 0 if row_groups is None else len(row_groups.files)
        # Single items of an `array` are added to faster than those of a NumPy array.
        self._file_seconds, self._file_loads = array.array("d", bytes(8 * files)), array.array("q", bytes(8 * files))

    @property
    def is_unused(self) -> bool:
        """Whether the consumer has not received any batches."""
        return self._spans == 0

    def add(self, stage: Stage, seconds: float) -> None:
        """Add time that the consumer's thread spent in a stage; counted at the next wait for batches."""
        self._pending[stage] = self._pending.get(stage, 0.0) + seconds

    def note_loads(self, groups: Sequence[int]) -> None:
        """Count row groups whose load is submitted. One thread at a time may call it."""
        self.row_groups_loaded += len(groups)
        if self._row_groups is not None:
            file, loads = self._row_groups.file, self._file_loads
            for group in groups:
                loads[file[group]] += 1

    def note_wait(
        self,
        began: float,
        ended: float,
        number: int,
        groups: Container[int],
        *,
        rows: int,
        ready: int,
        released: Sequence[int] = (),
    ) -> None:
        """Count the wait for a span (consecutive batches), or for the end of the iteration.

        Args:
            began: Time at which the consumer requested the span.
            ended: Time at which the span was ready.
            number: Number of the span; -1 for the end of the iteration.
            groups: Row groups that the span needs.
            rows: Number of rows of the span; 0 at the end of the iteration.
            ready: Number of spans that were ready when the span was requested.
            released: Row groups that no later span needs until they are loaded again.
        """
        wait, is_first = ended - began, self._spans == 0
        divides = wait > _SHORTEST_S and self._pays_for_division(began, ended)
        # Otherwise the log keeps its time intervals until a later wait: taking them costs more than all other counters.
        takes = is_first or divides or self.listeners or len(self.log) > _MOST_SEGMENTS
        segments = self._take_segments() if takes else ()
        self.waited_s += wait
        if is_first and not self._counts_start:
            self._startup_s, self._begun = wait, ended
            self._first_wait = segments, began, ended, number, groups  # divided if no second wait follows
            self._pending.clear()
        else:
            if rows:
                self._first_wait = None
            if is_first:
                self._begun = began
            self._waited_s += wait
            if divides:
                self._attributed_s += wait
                _add(self._waits, attributed(segments, began, ended, number, groups))
            if self._pending:
                pending, self._pending = self._pending, {}
                _add(self._own, pending)
        self._last, self.is_over = ended, number < 0
        if rows:
            self._spans += 1
            self.rows += rows
            self._ready += ready
        if self._row_groups is not None:
            for group in released:
                self._rows_released += int(self._row_groups.rows[group])
        for listener in self.listeners:
            listener(self, segments, began, ended)

    def _pays_for_division(self, began: float, ended: float) -> bool:
        """Pay for dividing a wait among stages; return False if that has taken too much time so far."""
        if self._spans == 0 and not self._counts_start:
            return False
        since = ended - (self._last if self._spans else began)
        cost = _COST_S + _COST_OF_SEGMENT_S * len(self.log)
        self._credit_s = min(self._credit_s + _COST_SHARE * since, _MOST_CREDIT_S)
        if self._credit_s < cost:
            return False
        self._credit_s -= cost
        return True

    def _take_segments(self) -> Sequence[Segment]:
        """Empty the log, and add the seconds of each row group load to the total of the row group's file."""
        segments = [self.log.popleft() for _ in range(len(self.log))]
        self._add_file_seconds(segments, self._file_seconds)
        return segments

    def _add_file_seconds(self, segments: Iterable[Segment], seconds: array.array[float]) -> None:
        if self._row_groups is None:
            return
        file = self._row_groups.file
        for began, ended, _, owner, _ in segments:
            if not isinstance(owner, int):  # not the assembly of a span
                share = (ended - began) / len(owner)
                for group in owner:
                    seconds[file[group]] += share

    def file_of(self, group: int) -> str | None:
        """Return the path of a row group's file; None if row groups are unknown."""
        row_groups = self._row_groups
        return None if row_groups is None else row_groups.files[int(row_groups.file[group])].path

    def counters(self) -> Counters:
        """Return a snapshot of the counters; fields that this object does not count have their defaults."""
        is_first_only = self._spans <= 1 and not self._counts_start
        own = dict(self._own)
        scale = self._waited_s / self._attributed_s if self._attributed_s else 1.0
        waits = {stage: seconds * scale for stage, seconds in self._waits.copy().items()}
        _add(waits, own)
        elapsed, waited, startup = self._last - self._begun, self._waited_s + sum(own.values()), self._startup_s
        if is_first_only:
            first = self._first_wait
            _add(waits, {} if first is None else attributed(*first))
            elapsed, waited, startup = elapsed + startup, waited + startup, 0.0
        name, slowest_s, median_s = self._slowest()
        spans = self._spans
        return Counters(
            elapsed_seconds=elapsed,
            wait_seconds=waited,
            wait_storage_seconds=waits.get("storage", 0.0),
            wait_decoding_seconds=waits.get("decoding", 0.0),
            wait_transform_seconds=waits.get("transform", 0.0),
            wait_assembly_seconds=waits.get("assembly", 0.0),
            wait_copy_seconds=waits.get("copy", 0.0),
            startup_seconds=startup,
            rows=self.rows,
            spans=spans,
            ready_spans_mean=self._ready / spans if spans else 0.0,
            spans_ahead=self.spans_ahead,
            row_groups_loaded=self.row_groups_loaded,
            rows_released=self._rows_released,
            slowest_file=name,
            slowest_file_seconds=slowest_s,
            median_file_seconds=median_s,
        )

    def _slowest(self) -> tuple[str | None, float, float]:
        """Return the file with the slowest loads, its mean seconds per row group, and the median of all files.

        If row groups of fewer than two files were loaded, the file is None.
        """
        file_seconds = self._file_seconds[:]
        self._add_file_seconds(self.log.copy(), file_seconds)
        seconds, loads = np.array(file_seconds), np.array(self._file_loads)
        (files,) = np.nonzero(seconds * loads)
        if self._row_groups is None or len(files) < 2:
            return None, 0.0, 0.0
        means = seconds[files] / loads[files]
        slowest = int(np.argmax(means))
        return self._row_groups.files[files[slowest]].path, float(means[slowest]), float(np.median(means))


def _add(sums: dict[Stage, float], more: dict[Stage, float]) -> None:
    for stage, seconds in more.items():
        sums[stage] = sums.get(stage, 0.0) + seconds


_Item = TypeVar("_Item")
_Made = TypeVar("_Made")


def timed(call: Callable[[_Item], _Made], reader: Any, stage: Stage) -> Callable[[_Item], _Made]:
    """Return a function that adds the time of each call to a stage of the reader's current iteration.

    Example:
        >>> class Reader:
        ...     meter = WaitMeter()
        >>> timed(str, Reader(), "assembly")(7)
        '7'
    """

    @functools.wraps(call)
    def timing(item: _Item) -> _Made:
        began = time.perf_counter()
        made = call(item)
        reader.meter.add(stage, time.perf_counter() - began)
        return made

    return timing
