"""Tests of the memory measurement: only memory that the function allocates counts, not that of the parent process."""

from __future__ import annotations

import os

from tests.memory import grown_in_child


def test_memory_measure_ignores_memory_freed_by_a_fork() -> None:
    held = [bytearray(100_000_000)]
    os.register_at_fork(after_in_child=held.clear)
    given, grown = grown_in_child(lambda _: len(b"x" * 50_000_000))
    held.clear()
    assert given == 50_000_000
    assert 45_000_000 < grown < 60_000_000


def test_memory_measure_counts_reused_freed_memory() -> None:
    pieces = [bytearray(100_000) for _ in range(1_000)]
    end = pieces.pop()  # the last block stays, so that the C library keeps the freed memory before it
    pieces.clear()
    given, grown = grown_in_child(lambda _: len(b"x" * 50_000_000))
    assert (given, len(end)) == (50_000_000, 100_000)
    assert 45_000_000 < grown < 60_000_000


def test_memory_measure_does_not_depend_on_free_parts_of_the_heap() -> None:
    pieces = [bytearray(100_000) for _ in range(400)]
    end = pieces.pop()  # as above: 40 MB of free memory, in which a block of 30 MB fits, and one of 50 MB does not
    pieces.clear()
    given, grown = grown_in_child(lambda _: len(b"x" * 30_000_000) + len(b"x" * 50_000_000))
    assert (given, len(end)) == (80_000_000, 100_000)
    assert 45_000_000 < grown < 60_000_000
