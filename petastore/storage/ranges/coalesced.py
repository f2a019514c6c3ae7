"""Ranges of bytes that are wanted → the few requests that fetch them. Pure.

A hole between two ranges is fetched along where that costs less than to ask once more; a long request is divided where
several connections bring it sooner.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
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
        >>> from petastore.storage.ranges.line import Line
        >>> longest_hole(Line(0.001, 100e6)), longest_hole(Line(0.1, 1e9))
        (100000, 1048576)
    """
    return min(max(line.bytes_in_a_wait, LEAST_HOLE_BYTES), MOST_HOLE_BYTES)


def coalesced(asked: Iterable[ByteRange], line: Line) -> list[ByteRange]:
    """Requests for all these ranges: sorted, without overlap, and each begins and ends with a byte that was asked for.

    Each hole that is fetched along costs less than one more request, one after the other. All of them together are no
    longer than what was asked for, the shortest first: requests may also be made at the same time, and bytes may not.

    Args:
        asked: In any order; they may overlap.
        line: What requests cost.

    Example:
        >>> from petastore.storage.ranges.line import Line
        >>> line = Line(0.001, 100e6)
        >>> coalesced([ByteRange(500_000, 10), ByteRange(0, 10), ByteRange(20, 10)], line)
        [ByteRange(offset=0, length=30), ByteRange(offset=500000, length=10)]
        >>> coalesced([ByteRange(0, 20_000), ByteRange(50_000, 20_000), ByteRange(100_000, 10)], line)
        [ByteRange(offset=0, length=70000), ByteRange(offset=100000, length=10)]
    """
    apart = _joined(sorted(asked), lambda hole, _: hole <= 0)
    left, longest = sum(one.length for one in apart), longest_hole(line)
    fetched: set[int] = set()
    holes = [(other.offset - one.end, number) for number, (one, other) in enumerate(itertools.pairwise(apart))]
    for hole, number in sorted(holes):
        if hole > LEAST_HOLE_BYTES and hole > min(longest, left):
            break
        fetched.add(number)
        left -= hole
    return _joined(apart, lambda _, number: number in fetched)


def _joined(ranges: Iterable[ByteRange], are_one: Callable[[int, int], bool]) -> list[ByteRange]:
    """Neighbours as one range, where the hole between them and its number say so."""
    joined: list[ByteRange] = []
    for number, one in enumerate(ranges, -1):
        if joined and are_one(one.offset - joined[-1].end, number):
            first = joined[-1].offset
            joined[-1] = ByteRange(first, max(joined[-1].end, one.end) - first)
        else:
            joined.append(one)
    return joined


def divided(requests: Sequence[ByteRange], line: Line, most: int) -> list[ByteRange]:
    """The same bytes by up to `most` requests at a time, in the same order: long ones in equal pieces.

    Where there are as many requests already nothing is won by dividing them.

    Args:
        requests: Without overlap.
        line: What requests cost.
        most: How many are under way at a time, at least 1.

    Example:
        >>> from petastore.storage.ranges.line import Line
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
