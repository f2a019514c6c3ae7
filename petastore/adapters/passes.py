"""Passes over a reader, one at a time: what a loader does each time somebody iterates it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from petastore.errors import RequestError
from petastore.forks import made_anew_in_children

__all__ = ["Passes", "taken_over"]


class Passes:
    """Starts passes over one reader; the newest pass is the only one that goes on.

    A pass is all epochs of the reader. The first one goes on from where the reader stands, and so does the one after
    `load_state_dict` or `reshard`; each other one begins before the first row. A reader has one place at a time, so a
    pass that is started while another is under way takes the reader over, and the older one says so when somebody asks
    it for more. Which iterator was forgotten and which is still wanted cannot be known earlier: one that a `break` left
    behind looks just the same.

    Passes may be started and continued from any threads.
    """

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self.make_anew()
        self._newest = 0
        self._plan: Any = None
        made_anew_in_children(self)

    def make_anew(self) -> None:
        """No thread is in the reader: those are the parent's."""
        self._lock = threading.Lock()

    @property
    def newest(self) -> int:
        """The number of the newest pass that has begun; 0 before any."""
        return self._newest

    def start(self, batch_size: int) -> Iterator[Any]:
        """The batches of a new pass; the pass begins with the first `next`.

        Raises:
            RequestError: By `next`: a newer pass has taken the reader over.
        """
        with self._lock:
            self._newest += 1
            ours = self._newest
            # Whoever moves a reader on purpose gives it another plan.
            moved = self._reader.plan is not self._plan
            if not moved or self._reader.last_row_consumed:
                self._reader.reset()
            self._plan = self._reader.plan
            batches = iter(self._reader.batches(batch_size))
        while True:
            with self._lock:
                if ours != self._newest:
                    raise taken_over()
                batch = next(batches, None)
            if batch is None:
                return
            yield batch


def taken_over() -> RequestError:
    """The error of an iterator whose reader a newer pass has taken over."""
    return RequestError(
        "this iterator has ended because the loader was iterated again, and a reader has one place at a time; finish "
        "one loop before the next, or make a reader for each"
    )
