"""Log lines: rows per second and waits of a loader, every few steps."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

from petastore.errors import InvalidArgumentError
from petastore.monitoring.diagnosis import Diagnosis, diagnose

__all__ = ["logged"]

_log = logging.getLogger("petastore.monitoring")


class logged(Iterator[Any]):  # noqa: N801 - called like a function
    """Iterate over a loader, and log a line after every `every` steps: rate and waits since the last line.

    ```text
    step 200: 12,345 rows/s, training waited 31 % of the time (storage 28 %, decoding 3 %)
    ```

    Lines have level INFO, and only rank 0 logs.

    Args:
        loader: Loader over a reader, with `diagnosis`.
        every: Number of steps between lines.
        log: Function that logs a line; None uses the logger `petastore.monitoring`.

    Raises:
        InvalidArgumentError: `every` is not an int of at least 1.

    Example:
        >>> import petastore, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = petastore.write_dataset(folder + "/ids", {"id": list(range(40))})
        ...     lines = []
        ...     with petastore.make_batch_reader(folder + "/ids") as reader:
        ...         for batch in logged(reader, every=1, log=lines.append):
        ...             pass
        >>> lines[0].startswith("step 1: ")
        True
    """

    def __init__(self, loader: Any, every: int = 100, *, log: Callable[[str], object] | None = None) -> None:
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise InvalidArgumentError(f"every must be an int of at least 1, got {every!r}")
        self._loader, self._every, self._log = loader, every, _log.info if log is None else log
        self._batches = iter(loader)
        self._steps = 0
        self._before = loader.diagnosis()

    def __next__(self) -> Any:
        if self._steps and self._steps % self._every == 0:
            self._line()
        batch = next(self._batches)
        self._steps += 1
        return batch

    def _line(self) -> None:
        found = self._loader.diagnosis()
        if found.counters.rank == 0:
            self._log(f"step {self._steps:,}: {_text(diagnose(found.counters.since(self._before.counters)))}")
        self._before = found


def _text(found: Diagnosis) -> str:
    counters = found.counters
    if counters.elapsed_seconds <= 0:
        return "no wait for data since the last line"
    rate, stages = counters.rows / counters.elapsed_seconds, found.evidence
    waited = f"training waited {found.wait_share * 100:.0f} % of the time"
    return f"{rate:,.0f} rows/s, {waited}" + (f" ({stages})" if stages else "")
