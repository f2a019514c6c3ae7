"""Progress display of a reader: rows, rate, share of stalls and remaining time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from petastore.monitoring.activity import Segment
from petastore.monitoring.diagnosis import diagnose
from petastore.monitoring.progress import ProgressDisplay
from petastore.monitoring.waits import WaitMeter

__all__ = ["ReaderProgress"]


class ReaderProgress:
    """Listener of a reader's wait meters that shows the progress of each iteration.

    Args:
        rows_left: Function that returns the number of rows of the iteration that begins; None if it is endless.
        display: Function that creates a display.
    """

    def __init__(self, rows_left: Callable[[], int | None], display: Callable[..., Any] = ProgressDisplay) -> None:
        self._rows_left, self._new_display = rows_left, display
        self._display: Any = None
        self._meter: WaitMeter | None = None

    def __call__(self, meter: WaitMeter, segments: Sequence[Segment], began: float, ended: float) -> None:  # noqa: ARG002
        """Show the progress after a wait; called by the consumer's thread."""
        if meter is not self._meter:
            self.close()
            self._meter, self._display = meter, self._new_display("reading", "rows", self._rows_left())
        if meter.is_over or self._display.is_due:
            share = diagnose(meter.counters()).wait_share
            self._display.update(meter.rows, note=f"waited {share * 100:.0f} % of the time")
        if meter.is_over:
            self._display.close()

    def close(self) -> None:
        """Remove the display. May be called again."""
        if self._display is not None:
            self._display.close()
