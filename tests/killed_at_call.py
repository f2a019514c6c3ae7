"""Kill a child process at its n-th function call: reproducible crash tests without a clock."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import petastore
from tests.forked import forked, forked_with_a_pipe

__all__ = ["call_count", "points", "run_until_call"]

_PACKAGE = str(Path(petastore.__file__).parent) + os.sep


def _count_calls(folders: tuple[str, ...], on_call: Callable[[int], object]) -> None:
    """Count the calls of this thread to Python functions that are defined in these folders of petastore."""
    below = tuple(_PACKAGE + folder + os.sep for folder in folders)
    calls = 0

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        if event == "call" and frame.f_code.co_filename.startswith(below):
            calls += 1
            on_call(calls)

    sys.setprofile(profile)


def call_count(run: Callable[[Callable[[], None]], object], *folders: str) -> tuple[int, int]:
    """Return how many calls a child makes before it calls its argument, and in total.

    Args:
        run: Function that the child runs; it calls its argument at the point of interest.
        folders: Folders of petastore whose functions count, such as `"writers"`.
    """
    last = [0, 0]

    def count(end: int) -> None:
        _count_calls(folders, lambda calls: last.__setitem__(1, calls))
        run(lambda: last.__setitem__(0, last[1]))
        sys.setprofile(None)
        os.write(end, f"{last[0]} {last[1]}".encode())

    child, there = forked_with_a_pipe(count)
    with os.fdopen(there) as pipe:
        here, total = map(int, pipe.read().split())
    assert os.waitpid(child, 0)[1] == 0
    return here, total


def run_until_call(run: Callable[[Callable[[], None]], object], call: int, *folders: str) -> bool:
    """Run a child that kills itself at the n-th call; return whether it reached that call.

    Args:
        run: As for `call_count`.
        call: Number of the call, from 1.
        folders: As for `call_count`.
    """

    def die_at(calls: int) -> None:
        if calls == call:
            os.kill(os.getpid(), signal.SIGKILL)

    def child() -> None:
        _count_calls(folders, die_at)
        run(lambda: None)
        sys.setprofile(None)

    status = os.waitpid(forked(child), 0)[1]
    assert status == 0 or os.WTERMSIG(status) == signal.SIGKILL, status
    return status != 0


def points(first: int, last: int, count: int) -> Iterator[int]:
    """Return up to `count` distinct numbers from `first` to `last`, evenly spaced, both ends included."""
    count = min(count, last - first + 1)
    return iter(sorted({first + (last - first) * number // max(count - 1, 1) for number in range(count)}))
