"""Measure the peak memory of a function in a forked child with a memory limit."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["grown_in_child"]

_MOST_BYTES = 4 * 1024**3
"""What a child may ask the system for beyond what it begins with; the machine is not to be harmed by a law."""


def grown_in_child(work: Callable[[Callable[[], int]], Any]) -> tuple[Any, int]:
    """What some work gives, and how many bytes a process grows by meanwhile, at most.

    The work is done in a forked child of this process, which must not need its threads.

    Args:
        work: Gives what JSON can say; is given a function that tells by how much the process grew so far, at most.

    Raises:
        AssertionError: The child ended otherwise than by the work's end.

    Example:
        >>> given, grown = grown_in_child(lambda growth: len(b"x" * 50_000_000))
        >>> given, 45_000_000 < grown < 60_000_000
        (50000000, True)
    """
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads: the child uses none
        child = os.fork()
    if child == 0:
        _in_child(work, writing)
    os.close(writing)
    with os.fdopen(reading) as answer:
        said = answer.read()
    _, status = os.waitpid(child, 0)
    assert said, f"the child ended with status {status} while it was measured"
    given, grown = json.loads(said)
    return given, grown


def _in_child(work: Callable[[Callable[[], int]], Any], writing: int) -> None:
    status = 1
    try:
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        if Path("/proc/self/statm").exists():
            resource.setrlimit(resource.RLIMIT_AS, (_in_pages(0) + _MOST_BYTES, hard))
        _give_back()
        _forget_peak()
        before = _now()
        given = work(lambda: _peak() - before)
        os.write(writing, json.dumps([given, _peak() - before]).encode())
        status = 0
    finally:
        os._exit(status)


def _peak() -> int:
    """The most memory that this process had at a time."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _give_back() -> None:
    """Gives the system what the C library has and nobody uses: who were given that would not grow."""
    with contextlib.suppress(AttributeError, OSError):  # another library has no such function
        ctypes.CDLL(None).malloc_trim(0)


def _forget_peak() -> None:
    """Begins to look for the peak now: what allocators give back as a fork begins was its peak until then."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _now() -> int:
    """The memory that this process has; where the system does not tell, the most that it had."""
    return _in_pages(1) if Path("/proc/self/statm").exists() else _peak()


def _in_pages(place: int) -> int:
    return int(Path("/proc/self/statm").read_text().split()[place]) * os.sysconf("SC_PAGE_SIZE")
