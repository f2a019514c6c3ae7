"""Small row groups are fetched several at a time: to hand one to a worker would take longer than to read it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from petastore.work.together import flat

__all__ = ["FetchTogether", "Run", "runs"]

FetchTogether: TypeAlias = Callable[[Sequence[tuple[int, Any]]], list[Any] | None]

_MOST_BYTES = 512 * 1024
"""Bytes of the row groups that one task fetches, if they are several."""

_TASKS_A_WORKER = 4
"""Into so many tasks for each worker the row groups of a span are divided at least."""


def runs(groups: Sequence[int], sizes: NDArray[np.int64], workers: int) -> list[slice]:
    """How some row groups are divided among tasks: which of them each one fetches.

    Args:
        groups: Numbers of the row groups.
        sizes: Of each row group of the dataset: its bytes.
        workers: How many there are.

    Example:
        >>> [(run.start, run.stop) for run in runs(range(20), np.full(20, 100), 2)]
        [(0, 2), (2, 4), (4, 6), (6, 8), (8, 10), (10, 12), (12, 14), (14, 16), (16, 18), (18, 20)]
        >>> len(runs(range(20), np.full(20, 10**6), 2)), len(runs(range(3), np.full(3, 100), 2))
        (20, 3)
    """
    most = max(len(groups) // (_TASKS_A_WORKER * max(workers, 1)), 1)
    if most == 1:
        return [slice(number, number + 1) for number in range(len(groups))]
    found: list[slice] = []
    first = held = 0
    for number, size in enumerate(sizes[np.asarray(groups)].tolist()):
        if number > first and (number - first == most or held + size > _MOST_BYTES):
            found.append(slice(first, number))
            first, held = number, 0
        held += size
    return [*found, slice(first, len(groups))]


class Run:
    """Row groups that one task fetches, and a future of each.

    Args:
        fetch: Fetches a row group, given its number and its read_order; gives a future where others are still at it.
        fetch_together: Fetches several at once, if they can be, and else gives None. What it raises is forgotten: to
            fetch them one by one says which of them it was.
        asked: Number and read_order of each.
        is_closed: Whether nobody wants them any more.
    """

    def __init__(
        self,
        fetch: Callable[[int, Any], Any],
        fetch_together: FetchTogether | None,
        asked: Sequence[tuple[int, Any]],
        is_closed: Callable[[], bool],
    ) -> None:
        self._fetch = fetch
        self._fetch_together = fetch_together
        self._asked = asked
        self._is_closed = is_closed
        self.futures: list[Future[Any]] = [Future() for _ in asked]
        """Of each row group: of what was fetched, in the order asked."""

    def __call__(self) -> None:
        """Fetches them."""
        futures, self.futures = self.futures, []  # who keeps the task does not keep what it has made
        together = self._together()
        if together is not None:
            for future in futures:
                future.set_result(together.pop(0))
            return
        for (group, read_order), future in zip(self._asked, futures, strict=True):
            if self._is_closed():
                future.cancel()
                continue
            try:
                made = self._fetch(group, read_order)
            except BaseException as problem:  # noqa: BLE001 - it belongs to whoever asks for the result
                future.set_exception(problem)
            else:
                _settle(future, made)

    def _together(self) -> list[Any] | None:
        if self._fetch_together is None or self._is_closed():
            return None
        try:
            return self._fetch_together(self._asked)
        except Exception:  # noqa: BLE001 - it is raised again by the one that it belongs to, if it stays
            return None

    def settled(self, task: Future[Any]) -> None:
        """Cancels what is asked for, where the task itself was cancelled."""
        if task.cancelled():
            for future in self.futures:
                future.cancel()


def _settle(future: Future[Any], made: Any) -> None:
    if isinstance(made, Future):
        flat(made, future)
    else:
        future.set_result(made)
