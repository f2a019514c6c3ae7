"""Kill readers while they fill a cache: `python -m tests.readers.killed_with_a_cache FOLDER KILLS URL…`.

Each is killed at a counted step: before a cache file is opened, renamed, removed or truncated, or in the middle of a
write. Prints JSON: the number of killed readers, the most bytes on disk at any step, the number of later readers with
wrong rows, and leftover files.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import mmap
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import petastore
from tests.forked import forked
from tests.laws.cache_laws import bytes_at_one_moment

LIMIT = 600_000
"""A cache limit of about half of the bytes that are read."""

EPOCHS = 20
"""More epochs than any reader reads until it is killed."""

EVENTS = frozenset(["open", "os.mkdir", "os.rename", "os.remove", "os.truncate"])
"""Audit events of Python that may change a file."""


class Steps:
    """Counts the steps in which a process changes a cache, and kills it at one of them; children share the counters."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._shared = np.frombuffer(mmap.mmap(-1, 16), np.int64)
        self._lock = threading.RLock()
        self._is_measuring = False
        self._last = 0
        self._pwrite = os.pwrite

    @property
    def most_bytes(self) -> int:
        """The most bytes that the cache had at any step of any process."""
        return int(self._shared[0])

    @property
    def taken(self) -> int:
        """The number of steps of the last process that counted."""
        return int(self._shared[1])

    def count(self, last: int) -> None:
        """Start to count in this process, which is killed at step `last`, or never if that is 0."""
        self._last, self._shared[1] = last, 0
        os.pwrite = self._write
        sys.addaudithook(self._audited)

    def measure(self) -> None:
        """Record the current number of bytes of the cache."""
        self._is_measuring = True
        self._shared[0] = max(self._shared[0], bytes_at_one_moment(Path(self._folder)))
        self._is_measuring = False

    def _audited(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in EVENTS and not self._is_measuring:
            is_cached = isinstance(arguments[0], int) or str(arguments[0]).startswith(self._folder)
            if is_cached and self._is_last():
                os.kill(os.getpid(), signal.SIGKILL)

    def _write(self, file: int, data: Any, offset: int) -> int:
        if self._is_last():
            self._pwrite(file, memoryview(data)[: len(data) // 2], offset)
            self.measure()
            os.kill(os.getpid(), signal.SIGKILL)
        return self._pwrite(file, data, offset)

    def _is_last(self) -> bool:
        with self._lock:
            self.measure()
            self._shared[1] += 1
            return bool(self._shared[1] == self._last)


def opened(folder: Path, urls: Sequence[str], seed: int, **asked: Any) -> Any:
    kept: dict[str, Any] = {"cache_type": "local-disk", "cache_location": folder, "cache_size_limit": LIMIT}
    return petastore.make_batch_reader(urls, seed=seed, reader_pool_type="dummy", **kept, **asked)


def fill(folder: Path, urls: Sequence[str], seed: int, steps: Steps, last: int) -> None:
    """Read until killed, or for one epoch if `last` is 0."""
    steps.count(last)
    with opened(folder, urls, seed, num_epochs=EPOCHS if last else 1, shuffle_rows=True) as reader:
        for _ in reader:
            pass


def verify(folder: Path, urls: Sequence[str], seed: int) -> None:
    """Read all rows with the existing cache, and check their values."""
    with opened(folder, urls, seed) as reader:
        batches = list(reader)
    ids = np.concatenate([batch.id for batch in batches])
    assert np.array_equal(np.concatenate([batch.half for batch in batches]), ids / 2)
    assert len(np.unique(ids, return_index=True)[0]) == len(ids) == reader.num_rows


def load_what_readers_load(folder: Path, urls: Sequence[str]) -> None:
    """Import all modules that reading imports, so that child processes need not."""
    ends = os.pipe()

    def told() -> None:
        verify(folder, urls, 0)
        os.write(ends[1], "\n".join(name for name in sys.modules if name != "__main__").encode())

    child = forked(told)
    os.close(ends[1])
    with os.fdopen(ends[0], encoding="utf-8") as names:
        for name in names.read().splitlines():
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    assert os.waitpid(child, 0)[1] == 0


def main(folder: Path, kills: int, urls: Sequence[str]) -> None:
    """Kill readers at steps spread over the first epoch, and check the cache after each."""
    load_what_readers_load(folder, urls)
    steps = Steps(folder)
    assert os.waitpid(forked(lambda: fill(folder, urls, 0, steps, 0)), 0)[1] == 0
    of_an_epoch = steps.taken
    killed = wrong = 0
    for number in range(kills):
        last = 1 + number * of_an_epoch // kills
        status = os.waitpid(forked(lambda n=number, last=last: fill(folder, urls, n, steps, last)), 0)[1]  # type: ignore[misc]
        killed += os.waitstatus_to_exitcode(status) == -signal.SIGKILL
        steps.measure()
        wrong += os.waitpid(forked(lambda n=number: verify(folder, urls, n)), 0)[1] != 0  # type: ignore[misc]
        steps.measure()
    left = [str(path) for name in ("writing", "futures") for path in (folder / "petastore-cache-1" / name).iterdir()]
    counts = {"killed": killed, "wrong": wrong, "most": steps.most_bytes, "limit": LIMIT, "steps": of_an_epoch}
    print(json.dumps({**counts, "left": left}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
