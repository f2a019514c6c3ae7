"""Tests of coalescing byte ranges: few requests cover all ranges, with only short gaps."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from petastore.storage.ranges.fetch import (
    MAX_GAP_BYTES,
    MAX_REQUEST_BYTES,
    MIN_GAP_BYTES,
    MIN_PART_BYTES,
    ByteRange,
    coalesce,
    split_large,
)

RANGES = st.lists(st.builds(ByteRange, st.integers(0, 50_000_000), st.integers(1, 10_000_000)), max_size=12)
NEAR_RANGES = st.lists(st.tuples(st.integers(0, 1_500_000), st.integers(1, 3_000_000)), max_size=8).map(
    lambda gaps_and_lengths: [
        ByteRange(sum(gap + length for gap, length in gaps_and_lengths[:number]) + gap, length)
        for number, (gap, length) in enumerate(gaps_and_lengths)
    ]
)


def joined(ranges: list[ByteRange]) -> list[ByteRange]:
    """Return the same bytes as disjoint ranges; adjacent ranges are merged."""
    apart: list[ByteRange] = []
    for one in sorted(ranges):
        if apart and one.offset <= apart[-1].end:
            apart[-1] = ByteRange(apart[-1].offset, max(apart[-1].end, one.end) - apart[-1].offset)
        else:
            apart.append(one)
    return apart


@given(RANGES | NEAR_RANGES)
def test_coalesce_puts_each_byte_range_into_one_request(ranges: list[ByteRange]) -> None:
    requests = coalesce(ranges)
    assert all(before.end < after.offset for before, after in itertools.pairwise(requests))
    for one in ranges:
        assert sum(request.offset <= one.offset and one.end <= request.end for request in requests) == 1


@given(RANGES | NEAR_RANGES)
def test_coalesce_fetches_gaps_of_limited_size_and_sum(ranges: list[ByteRange]) -> None:
    requests, apart = coalesce(ranges), joined(ranges)
    assert {one.offset for one in requests} <= {one.offset for one in ranges}
    assert {one.end for one in requests} <= {one.end for one in ranges}
    fetched = [
        after.offset - before.end
        for before, after in itertools.pairwise(apart)
        if any(request.offset <= before.offset and after.end <= request.end for request in requests)
    ]
    assert max(fetched, default=0) <= MAX_GAP_BYTES
    assert sum(fetched) <= sum(one.length for one in apart) + len(apart) * MIN_GAP_BYTES
    assert sum(one.length for one in requests) == sum(one.length for one in apart) + sum(fetched)


@given(NEAR_RANGES)
def test_coalesce_fetches_all_gaps_within_its_limits(ranges: list[ByteRange]) -> None:
    requests, apart = coalesce(ranges), joined(ranges)
    gaps = sorted(after.offset - before.end for before, after in itertools.pairwise(apart))
    left = sorted(after.offset - before.end for before, after in itertools.pairwise(requests))
    assert left == gaps[len(gaps) - len(left) :]  # only the longest gaps remain
    if left:
        with_next = sum(gap for gap in gaps if gap <= left[0])
        assert left[0] > MIN_GAP_BYTES
        assert left[0] > MAX_GAP_BYTES or with_next > sum(one.length for one in apart)


@given(RANGES, st.randoms(use_true_random=False))
def test_coalesce_does_not_depend_on_order(ranges: list[ByteRange], dice: object) -> None:
    shuffled = list(ranges)
    dice.shuffle(shuffled)  # type: ignore[attr-defined]
    assert coalesce(shuffled) == coalesce(ranges)


@given(RANGES, st.integers(1, 32))
def test_splitting_large_requests_keeps_bytes_and_bounds_their_size(ranges: list[ByteRange], concurrency: int) -> None:
    requests = coalesce(ranges)
    parts = split_large(requests, concurrency)
    assert joined(parts) == requests
    assert sum(one.length for one in parts) == sum(one.length for one in requests)
    assert max((one.length for one in parts), default=0) <= MAX_REQUEST_BYTES
    assert min((one.length for one in parts if one not in requests), default=MIN_PART_BYTES) >= MIN_PART_BYTES
    if all(one.length <= MAX_REQUEST_BYTES for one in requests):
        assert len(parts) <= max(len(requests), len(requests) + concurrency - 1)


def test_coalesce_joins_column_chunks_only_if_they_are_close() -> None:
    far = [ByteRange(number * 600_000, 32_000) for number in (0, 1, 2)]
    assert coalesce(far) == far
    near = [ByteRange(number * 60_000, 32_000) for number in (0, 1, 2)]
    assert coalesce(near) == [ByteRange(0, 152_000)]


def test_large_request_is_split_only_with_concurrency_or_above_the_limit() -> None:
    assert split_large([ByteRange(0, MAX_REQUEST_BYTES)], 1) == [ByteRange(0, MAX_REQUEST_BYTES)]
    assert len(split_large([ByteRange(0, 1 << 30)], 1)) == 64
