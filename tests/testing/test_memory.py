"""Growth is what the work took, whatever the process had before."""

from __future__ import annotations

import os

from petastore.testing.memory import grown_in_child


def test_what_a_fork_gives_back_at_once_is_no_growth() -> None:
    held = [bytearray(100_000_000)]
    os.register_at_fork(after_in_child=held.clear)
    given, grown = grown_in_child(lambda _: len(b"x" * 50_000_000))
    held.clear()
    assert given == 50_000_000
    assert 45_000_000 < grown < 60_000_000


def test_what_the_process_had_and_did_not_use_counts_when_it_is_used() -> None:
    pieces = [bytearray(100_000) for _ in range(1_000)]
    end = pieces.pop()  # behind it nothing is free, so what is before it stays with the C library
    pieces.clear()
    given, grown = grown_in_child(lambda _: len(b"x" * 50_000_000))
    assert (given, len(end)) == (50_000_000, 100_000)
    assert 45_000_000 < grown < 60_000_000
