"""The process pool: threads for all that holds no GIL, processes for the functions that do.

Fetching, page decode and codecs need no processes, and the shuffle window exists once. Only what a user's Python
function has to do to rows is given to worker processes (`petastore.transforming.processes`).
"""

from __future__ import annotations

from collections.abc import Callable

from petastore.work.thread import ThreadPool

__all__ = ["ProcessPool"]


class ProcessPool(ThreadPool):
    """The threads of a reader whose functions run in processes.

    Thread-safe.

    Args:
        threads: Tasks that run in threads at a time.
        processes: Calls of functions that run in processes at a time.
        cancel_calls: Forgets the calls that wait.

    Example:
        >>> pool = ProcessPool(2, 2, cancel_calls=lambda: None)
        >>> pool.submit(lambda: 7, priority=0).result()
        7
        >>> pool.close(); pool.join()
    """

    def __init__(self, threads: int, processes: int, *, cancel_calls: Callable[[], None]) -> None:
        self._cancel_calls = cancel_calls
        super().__init__(threads, elsewhere=processes)

    def close(self) -> None:
        """Cancels the tasks and calls that wait; those that run go on to their end."""
        super().close()
        self._cancel_calls()

    def join(self) -> None:
        """Waits for the tasks that run, then gives the threads back. The processes stay for the next pass."""
        super().join()
        self._cancel_calls()  # those that the last tasks made
