"""Readers that are killed while they fill a cache: `python -m tests.readers.killed_with_a_cache FOLDER URL...`.

Prints JSON: what was ever on disk at most, which readers that came afterwards had wrong rows, and what was left behind.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import petastore
from petastore.testing.cache_laws import bytes_at_one_moment
from tests.forked import forked

KILLED = 50
LIMIT = 600_000
"""Room for about half of what is read."""


def opened(folder: Path, urls: Sequence[str], seed: int, **asked: Any) -> Any:
    kept: dict[str, Any] = {"cache_type": "local-disk", "cache_location": folder, "cache_size_limit": LIMIT}
    return petastore.make_batch_reader(urls, seed=seed, reader_pool_type="dummy", **kept, **asked)


def fill(folder: Path, urls: Sequence[str], seed: int, told: int) -> None:
    """Reads for ever, and says so for the first time when it begins."""
    with opened(folder, urls, seed, num_epochs=None, shuffle_rows=True) as reader:
        os.write(told, b"1")
        for _ in reader:
            pass


def verify(folder: Path, urls: Sequence[str], seed: int) -> None:
    """Reads all, with what is in the cache."""
    with opened(folder, urls, seed) as reader:
        batches = list(reader)
    ids = np.concatenate([batch.id for batch in batches])
    assert np.array_equal(np.concatenate([batch.half for batch in batches]), ids / 2)
    assert len(np.unique(ids, return_index=True)[0]) == len(ids) == reader.num_rows


def load_what_readers_load(folder: Path, urls: Sequence[str]) -> None:
    """Imports what a reader has imported when it has read all, so that no child has to."""
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


def main(folder: Path, urls: Sequence[str]) -> None:
    """Kills, and looks."""
    load_what_readers_load(folder, urls)
    chance = random.Random(9)  # noqa: S311 - moments
    most = wrong = 0
    for moment in range(KILLED):
        told = os.pipe()
        child = forked(lambda moment=moment, end=told[1]: fill(folder, urls, moment, end))  # type: ignore[misc]
        os.close(told[1])
        os.read(told[0], 1)
        until = time.monotonic() + chance.random() * 0.3
        while time.monotonic() < until:
            most = max(most, bytes_at_one_moment(folder))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(told[0])
        most = max(most, bytes_at_one_moment(folder))
        child = forked(lambda moment=moment: verify(folder, urls, moment))  # type: ignore[misc]
        wrong += os.waitpid(child, 0)[1] != 0
        most = max(most, bytes_at_one_moment(folder))
    left = [str(path) for name in ("writing", "futures") for path in (folder / "petastore-cache-1" / name).iterdir()]
    print(json.dumps({"killed": KILLED, "wrong": wrong, "most": most, "limit": LIMIT, "left": left}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
