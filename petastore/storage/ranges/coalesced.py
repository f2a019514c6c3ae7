"""Coalescing of byte ranges: ranges to read → the few requests that fetch them. Pure.

The gap between two ranges is fetched with them where it is short; a large request is split so that several connections
share it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

__all__ = [
    "MAX_GAP_BYTES",
    "MAX_REQUEST_BYTES",
    "MIN_GAP_BYTES",
    "MIN_PART_BYTES",
    "ByteRange",
    "coalesce",
    "split_large",
]

MAX_GAP_BYTES = 1024 * 1024
"""A longer gap is never fetched: it takes longer than another request, and its bytes cost money."""

MIN_GAP_BYTES = 16 * 1024
"""A gap of up to this length is always fetched: it is in the same packets, or nearly so."""

MAX_REQUEST_BYTES = 16 * 1024 * 1024
"""A longer request is always split: a retry repeats no more than this."""

MIN_PART_BYTES = 4 * 1024 * 1024
"""A request is not split into shorter parts: the latency of each would take longer than its bytes."""


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


def coalesce(ranges: Iterable[ByteRange]) -> list[ByteRange]:
    """Return requests for all ranges: sorted, without overlap, each from a first to a last byte of some range.

    All gaps longer than 16 KiB that are fetched are together no longer than the ranges, shortest first: requests run
    concurrently and cost little time, bytes always do. Gaps of one length are all fetched, or none.

    Args:
        ranges: In any order; they may overlap.

    Example:
        >>> coalesce([ByteRange(500_000, 10), ByteRange(0, 10), ByteRange(20, 10)])
        [ByteRange(offset=0, length=30), ByteRange(offset=500000, length=10)]
        >>> coalesce([ByteRange(0, 20_000), ByteRange(50_000, 20_000), ByteRange(110_000, 10)])
        [ByteRange(offset=0, length=70000), ByteRange(offset=110000, length=10)]
    """
    apart = _merge(ranges, 0)
    if len(apart) < 2:
        return apart
    gaps = sorted(after.offset - before.end for before, after in itertools.pairwise(apart))
    total = sum(one.length for one in apart)
    bytes_up_to = dict(zip(gaps, itertools.accumulate(gaps), strict=True))  # of equal gaps the last, so all of them
    short = [gap for gap, together in bytes_up_to.items() if gap <= MAX_GAP_BYTES and together <= total]
    return _merge(apart, max([MIN_GAP_BYTES, *short]))


def _merge(ranges: Iterable[ByteRange], max_gap: int) -> list[ByteRange]:
    from fsspec.utils import merge_offset_ranges  # readers of local files do without fsspec

    ordered = sorted(ranges)
    if len(ordered) < 2:
        return ordered
    _, starts, ends = merge_offset_ranges(
        [""] * len(ordered), [one.offset for one in ordered], [one.end for one in ordered], max_gap, sort=False
    )
    return [ByteRange(start, end - start) for start, end in zip(starts, ends, strict=True)]


def split_large(requests: Sequence[ByteRange], concurrency: int) -> list[ByteRange]:
    """Return the same bytes in the same order, with long requests split into equal parts.

    Parts have 4 MiB or more, and at most 16 MiB; between these bounds there are as many as run concurrently.

    Args:
        requests: Without overlap.
        concurrency: Requests that run at a time, at least 1.

    Example:
        >>> split_large([ByteRange(0, 9_000_000)], concurrency=8)
        [ByteRange(offset=0, length=4500000), ByteRange(offset=4500000, length=4500000)]
        >>> split_large([ByteRange(0, 9_000_000)], concurrency=1)
        [ByteRange(offset=0, length=9000000)]
    """
    share = max(MIN_PART_BYTES, -(-sum(one.length for one in requests) // concurrency))

    def parts(one: ByteRange) -> Iterator[ByteRange]:
        count = max(one.length // share, -(-one.length // MAX_REQUEST_BYTES))
        cuts = [one.offset + one.length * number // count for number in range(count + 1)]
        return (ByteRange(start, end - start) for start, end in itertools.pairwise(cuts))

    return [part for one in requests for part in parts(one)]
