"""What the way to a storage costs: the wait for the first byte, and the bytes a second after it."""

from __future__ import annotations

import collections
import dataclasses
import statistics
import threading

from petastore.forks import made_anew_in_children

__all__ = ["LearntLine", "Line"]

_LATENCY_S = (0.0002, 2.0)
_BYTES_PER_S = (1e6, 2e9)
_REMEMBERED = 31
_TELLING_BYTES = 256 * 1024
"""Less comes with the first byte, and says nothing of how many follow."""


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """What one request costs.

    Example:
        >>> line = Line(latency_s=0.02, bytes_per_s=100e6)
        >>> line.seconds(1_000_000), line.bytes_in_a_wait
        (0.03, 2000000)
    """

    latency_s: float = 0.03
    """Seconds until the first byte, above 0."""

    bytes_per_s: float = 60e6
    """Bytes a second of one connection, above 0."""

    def seconds(self, length: int) -> float:
        """What a request of so many bytes takes."""
        return self.latency_s + length / self.bytes_per_s

    @property
    def bytes_in_a_wait(self) -> int:
        """So many bytes are fetched in the time that one more request is waited for."""
        return int(self.latency_s * self.bytes_per_s)


class LearntLine:
    """A line as the last requests found it: medians, so that one straggler changes nothing. Thread-safe.

    Args:
        line: What is believed until there is something better.

    Example:
        >>> learnt = LearntLine(Line(0.03, 60e6))
        >>> for _ in range(40):
        ...     learnt.note(0.002, 0.01, 4_000_000)
        >>> learnt.line
        Line(latency_s=0.002, bytes_per_s=400000000.0)
    """

    def __init__(self, line: Line | None = None) -> None:
        self._line = line or Line()
        self._latencies = collections.deque([self._line.latency_s], _REMEMBERED)
        self._rates = collections.deque([self._line.bytes_per_s], _REMEMBERED)
        self.make_anew()
        made_anew_in_children(self)

    def make_anew(self) -> None:
        """Has a lock that nobody holds."""
        self._lock = threading.Lock()

    @property
    def line(self) -> Line:
        """The line as it is believed to be now."""
        return self._line

    def note(self, wait_s: float, body_s: float | None, length: int) -> None:
        """A request was answered.

        Args:
            wait_s: Seconds until its first byte; until its last where `body_s` is None.
            body_s: Seconds from the first to the last.
            length: Bytes that came.
        """
        is_short = length < _TELLING_BYTES
        with self._lock:
            if body_s is None:
                body_s = max(wait_s - self._line.latency_s, 0.0)
                wait_s = wait_s if is_short else self._line.latency_s
            self._latencies.append(_within(wait_s, _LATENCY_S))
            if not is_short and body_s > 0:
                self._rates.append(_within(length / body_s, _BYTES_PER_S))
            self._line = Line(statistics.median(self._latencies), statistics.median(self._rates))


def _within(value: float, bounds: tuple[float, float]) -> float:
    return min(max(value, bounds[0]), bounds[1])
