"""Ranges of bytes that are wanted → the few requests that fetch them. Pure.

A hole between two ranges is fetched along where that costs less than to ask once more; a long request is divided where
several connections bring it sooner.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from petastore.storage.ranges.line import Line

__all__ = ["MOST_HOLE_BYTES", "ByteRange", "coalesced", "divided", "longest_hole"]

MOST_HOLE_BYTES = 1024 * 1024
"""A longer hole is never fetched: bytes cost money, and the line is shared with others."""

LEAST_HOLE_BYTES = 16 * 1024
"""A shorter hole is always fetched: it is in the same packets, or nearly so."""

_LEAST_PIECE_BYTES = 4 * 1024 * 1024
_WAITS_IN_A_PIECE = 4
"""A piece takes at least so many times as long as the wait for its first byte."""


class ByteRange(NamedTuple):
    """Some consecutive bytes of a file."""

    offset: int
    """Where they begin, from 0."""

    length: int
    """How many there are, at least 1."""

    @property
    def end(self) -> int:
        """Where the next byte after them is."""
        return self.offset + self.length


def longest_hole(line: Line) -> int:
    """The longest hole that is fetched along.

    Example:
        >>> longest_hole(Line(0.001, 100e6)), longest_hole(Line(0.1, 1e9))
        (100000, 1048576)
    """
    return min(max(line.bytes_in_a_wait, LEAST_HOLE_BYTES), MOST_HOLE_BYTES)


def coalesced(asked: Iterable[ByteRange], line: Line) -> list[ByteRange]:
    """Requests for all these ranges: sorted, without overlap, and each begins and ends with a byte that was asked for.

    Where holes of every length might be fetched no other requests would cost less on this line, one after the other.

    Args:
        asked: In any order; they may overlap.
        line: What requests cost.

    Example:
        >>> coalesced([ByteRange(500_000, 10), ByteRange(0, 10), ByteRange(20, 10)], Line(0.001, 100e6))
        [ByteRange(offset=0, length=30), ByteRange(offset=500000, length=10)]
    """
    hole = longest_hole(line)
    requests: list[ByteRange] = []
    for one in sorted(asked):
        if requests and one.offset - requests[-1].end <= hole:
            first = requests[-1].offset
            requests[-1] = ByteRange(first, max(requests[-1].end, one.end) - first)
        else:
            requests.append(one)
    return requests


def divided(requests: Sequence[ByteRange], line: Line, most: int) -> list[ByteRange]:
    """The same bytes by up to `most` requests at a time, in the same order: long ones in equal pieces.

    Where there are as many requests already nothing is won by dividing them.

    Args:
        requests: Without overlap.
        line: What requests cost.
        most: How many are under way at a time, at least 1.

    Example:
        >>> divided([ByteRange(0, 9_000_000)], Line(0.02, 50e6), most=8)
        [ByteRange(offset=0, length=4500000), ByteRange(offset=4500000, length=4500000)]
        >>> divided([ByteRange(0, 9_000_000)], Line(0.02, 50e6), most=1)
        [ByteRange(offset=0, length=9000000)]
    """
    least = max(_LEAST_PIECE_BYTES, _WAITS_IN_A_PIECE * line.bytes_in_a_wait)
    # What each connection would bring, were all bytes shared out evenly; a piece is no shorter than that.
    share = max(least, -(-sum(one.length for one in requests) // most))
    return [piece for one in requests for piece in _pieces(one, max(one.length // share, 1))]


def _pieces(one: ByteRange, count: int) -> Iterator[ByteRange]:
    cuts = [one.offset + one.length * number // count for number in range(count + 1)]
    return (ByteRange(begin, end - begin) for begin, end in itertools.pairwise(cuts))
