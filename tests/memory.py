"""Measure the peak memory growth of a function in a forked child with a memory limit."""

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
"""Limit of the memory that a child may allocate, so that a failing test does not exhaust the machine."""


_M_MMAP_THRESHOLD = -3
"""Number of the parameter in `malloc.h` of glibc."""

_IS_MMAPPED = 2
"""Bit of mapped blocks in the word before a block, as `malloc.c` of glibc defines it."""

_LARGE_BLOCK = 1 << 20
"""Minimum number of bytes of a block that has pages of its own."""


def grown_in_child(work: Callable[[Callable[[], int]], Any]) -> tuple[Any, int]:
    """Return the result of a function, and the peak growth of the process in bytes.

    The function runs in a forked child of this process, so it must not need the threads of this process.

    Args:
        work: Function that returns a JSON value; its argument is a function that returns the peak growth so far.

    Raises:
        AssertionError: The child ended before the function returned.

    Example:
        >>> given, grown = grown_in_child(lambda growth: len(b"x" * 50_000_000))
        >>> given, 45_000_000 < grown < 60_000_000
        (50000000, True)
    """
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about forks with threads: the child uses none of them
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
    """Return the peak memory of this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _give_back() -> None:
    """Return free memory of the C library to the system, so that allocations which reuse it count as growth.

    From then on, each block of a megabyte or more is allocated in pages of its own, which are returned when it is
    freed. By default, the C library keeps blocks of up to 32 MB in its heap once it has freed such a block, and they
    count until the heap is trimmed. Free parts of the heap that are large enough for such a block are allocated here,
    and never used: which parts are free depends on earlier tests, and freed blocks in them would count as growth.
    """
    with contextlib.suppress(AttributeError, OSError):  # another library has no such functions
        library = ctypes.CDLL(None)
        library.malloc_trim(0)
        library.mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK)
        library.malloc.restype = ctypes.c_void_p
        library.malloc.argtypes = [ctypes.c_size_t]
        while not _is_mapped(library.malloc(_LARGE_BLOCK)):
            pass


def _is_mapped(block: int) -> bool:
    """Return whether a block of glibc has pages of its own: a bit in the word before the block."""
    return bool(ctypes.c_size_t.from_address(block - ctypes.sizeof(ctypes.c_size_t)).value & _IS_MMAPPED)


def _forget_peak() -> None:
    """Reset the peak memory of this process, which includes memory that allocators freed during the fork."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _now() -> int:
    """Return the current memory of this process, or its peak where the system does not report it."""
    return _in_pages(1) if Path("/proc/self/statm").exists() else _peak()


def _in_pages(place: int) -> int:
    return int(Path("/proc/self/statm").read_text().split()[place]) * os.sysconf("SC_PAGE_SIZE")
