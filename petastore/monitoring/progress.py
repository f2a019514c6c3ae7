"""Progress displays: a progress bar on a terminal, otherwise a line every few seconds.

Reading, writing, copying and verifying use this module. The progress bar needs the package rich (extra `cli`). The
thread that reports progress also draws the bar, so that no additional thread uses CPU time.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from petastore.errors import InvalidArgumentError

__all__ = ["ProgressDisplay", "progress_line", "progress_shown"]

_LINE_S = 10.0
"""Seconds between lines of text, which are printed if a bar cannot be drawn."""

_BAR_S = 0.2
"""Seconds between two drawings of a bar."""


def progress_line(done: int, total: int | None, unit: str, *, seconds: float, note: str = "") -> str:
    """Return the progress as text, with the rate and the remaining time.

    Args:
        done: Number of finished units.
        total: Number of all units; None if unknown.
        unit: Name of the units.
        seconds: Time since the work began.
        note: More text, such as a share of stalls.

    Example:
        >>> progress_line(30_000, 120_000, "rows", seconds=10, note="waited 12 % of the time")
        '30,000 of 120,000 rows (25 %), 3,000 rows/s, waited 12 % of the time, 30 s left'
        >>> progress_line(7, None, "row groups", seconds=2)
        '7 row groups, 3.5 row groups/s'
    """
    rate = done / seconds if seconds > 0 else 0.0
    parts = [f"{done:,} {unit}"]
    if total:
        parts = [f"{done:,} of {total:,} {unit} ({100 * done / total:.0f} %)"]
    if rate:
        parts.append(f"{rate:,.1f} {unit}/s" if rate < 10 else f"{rate:,.0f} {unit}/s")
    if note:
        parts.append(note)
    if total and rate and done < total:
        parts.append(f"{_duration((total - done) / rate)} left")
    return ", ".join(parts)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


class ProgressDisplay(contextlib.AbstractContextManager["ProgressDisplay", None]):
    """Display of the progress of one task on standard error. Only one thread at a time may call `update`.

    Args:
        title: Name of the task, such as "reading".
        unit: Name of the units, in the plural.
        total: Number of all units; None if unknown.
        stream: Text stream; None means standard error.
        line_s: Seconds between lines, if the stream is not a terminal.
        bar_s: Seconds between two drawings of a bar.
        clock: Function that returns seconds.

    Example:
        >>> clock = iter([0.0, 5.0, 20.0, 40.0]).__next__
        >>> with ProgressDisplay("writing", "rows", 300, stream=sys.stdout, line_s=10, clock=clock) as display:
        ...     display.update(50); display.update(100); display.update(300)
        writing: 100 of 300 rows (33 %), 5.0 rows/s, 40 s left
        writing: 300 of 300 rows (100 %), 7.5 rows/s
    """

    def __init__(
        self,
        title: str,
        unit: str,
        total: int | None = None,
        *,
        stream: TextIO | None = None,
        line_s: float = _LINE_S,
        bar_s: float = _BAR_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._title, self._unit, self._total = title, unit, total
        self._stream, self._clock = sys.stderr if stream is None else stream, clock
        self._bar, self._task = _bar_on(self._stream, title)
        self._every_s = line_s if self._bar is None else bar_s
        self._done = 0
        self._began = self._shown = clock()
        if self._bar is not None:
            self._shown -= bar_s  # draw now, so that the bar is visible before the first update
        self._line = self._last_line = ""

    @property
    def is_due(self) -> bool:
        """Whether an update would be shown now."""
        return self._clock() - self._shown >= self._every_s

    def update(self, done: int, total: int | None = None, *, note: str = "") -> None:
        """Show the progress, unless it was shown a moment ago.

        Args:
            done: Number of finished units.
            total: Number of all units; None keeps the previous number.
            note: More text.
        """
        now, self._total, self._done = self._clock(), self._total if total is None else total, done
        self._line = progress_line(done, self._total, self._unit, seconds=now - self._began, note=note)
        if now - self._shown >= self._every_s:
            self._shown = now
            self._show()

    def _show(self) -> None:
        self._last_line = self._line
        if self._bar is None:
            print(f"{self._title}: {self._line}", file=self._stream, flush=True)
            return
        self._bar.start()
        self._bar.update(self._task, completed=self._done, total=self._total, text=self._line, refresh=True)

    def close(self) -> None:
        """Show the last update, if an earlier one was shown, and remove the bar. May be called again."""
        if self._last_line and self._line != self._last_line:
            self._show()
        if self._bar is not None:
            self._bar.stop()

    def __exit__(self, *_: object) -> None:
        self.close()


def _bar_on(stream: TextIO, title: str) -> tuple[Any, Any]:
    """Return a progress bar of rich and its task; (None, None) if rich is missing or the stream is not a terminal."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column
    except ImportError:
        return None, None
    console = Console(file=stream)
    if not (console.is_terminal or console.is_jupyter):
        return None, None
    text = TextColumn("{task.fields[text]}", table_column=Column())  # wraps on a narrow terminal
    columns = "{task.description}", BarColumn(12, table_column=Column(no_wrap=True)), text
    bar = Progress(*columns, console=console, transient=True, auto_refresh=False)
    return bar, bar.add_task(title, total=None, text="")


@contextlib.contextmanager
def progress_shown(
    progress: bool | Callable[..., object] | None, title: str, unit: str, total: int | None = None
) -> Iterator[Callable[..., object] | None]:
    """Context manager for a `progress=` argument: yield the function to call with the progress, or None.

    For True, this is the method `update` of a progress display; for a function, the function itself.

    Args:
        progress: True, a function of the user, or None or False for nothing.
        title: Name of the task, such as "reading".
        unit: Name of the units, in the plural.
        total: Number of all units; None if the number is unknown, or if the caller passes it with each update.

    Raises:
        InvalidArgumentError: `progress` is neither a bool, None nor a function.

    Example:
        >>> with progress_shown(print, "writing", "rows") as progress:
        ...     progress(7)
        7
    """
    if progress is None or progress is False:
        yield None
    elif progress is True:
        with ProgressDisplay(title, unit, total) as display:
            yield display.update
    elif callable(progress):
        yield progress
    else:
        raise InvalidArgumentError(f"progress must be True, False or a function, got {progress!r:.100}")
