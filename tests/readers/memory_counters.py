"""Count the memory that a program requests, independent of allocator, kernel and C library.

NumPy and Python allocate where `tracemalloc` sees it, Arrow counts its pool, and buffers of petastore are anonymous
mappings. Memory that image decoders take inside a call is not counted.
"""

from __future__ import annotations

import mmap
import re
import threading
import tracemalloc
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

__all__ = ["begin", "count_mappings", "grown_resident", "mapped_bytes", "most_taken"]

_lock = threading.Lock()
_mapped = {"now": 0, "most": 0}
_resident = [0]


class _CountedMap(mmap.mmap):
    """A mapping that is counted while it exists, if it is anonymous."""

    _size = 0

    def __new__(cls, file: int, size: int, *options: Any, **named: Any) -> Self:
        made = super().__new__(cls, file, size, *options, **named)
        if file == -1:
            made._size = size
            _count(size)
        return made

    def __del__(self) -> None:
        _count(-self._size)


def _count(size: int) -> None:
    with _lock:
        _mapped["now"] += size
        _mapped["most"] = max(_mapped["now"], _mapped["most"])


def begin() -> None:
    """Count from now on; mappings that exist already are not counted."""
    count_mappings()
    tracemalloc.start()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the peak of resident memory
    _resident[0] = _of_process("VmRSS")


def count_mappings() -> None:
    """Count only anonymous mappings, as `mapped_bytes` returns them."""
    mmap.mmap = _CountedMap  # type: ignore[assignment, misc]


def mapped_bytes() -> int:
    """Return the bytes of anonymous mappings that exist now."""
    return _mapped["now"]


def most_taken() -> int:
    """Return the bytes taken since `begin`: the sum of the three counters' peaks, which may be at different times."""
    return tracemalloc.get_traced_memory()[1] + pa.default_memory_pool().max_memory() + _mapped["most"]


def grown_resident() -> int:
    """Return the peak growth of resident memory since `begin`, including reserves of allocators."""
    return _of_process("VmHWM") - _resident[0]


def _of_process(name: str) -> int:
    found = re.search(name + r":\s+(\d+)", Path("/proc/self/status").read_text(encoding="ascii"))
    assert found is not None
    return 1024 * int(found.group(1))
