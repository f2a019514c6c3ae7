"""Few requests bring every byte that was asked for, and cost no more than others would."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis import assume, given
from hypothesis import strategies as st

from petastore.storage.ranges.coalesced import (
    LEAST_HOLE_BYTES,
    MOST_HOLE_BYTES,
    ByteRange,
    coalesced,
    divided,
    longest_hole,
)
from petastore.storage.ranges.line import Line

LINES = st.builds(Line, st.floats(0.0002, 2), st.floats(1e6, 2e9))
RANGES = st.lists(st.builds(ByteRange, st.integers(0, 50_000_000), st.integers(1, 10_000_000)), max_size=12)
NEAR_RANGES = st.lists(st.tuples(st.integers(0, 1_500_000), st.integers(1, 3_000_000)), max_size=8).map(
    lambda holes_and_lengths: [
        ByteRange(sum(hole + length for hole, length in holes_and_lengths[:number]) + hole, length)
        for number, (hole, length) in enumerate(holes_and_lengths)
    ]
)
LINES_OF_USUAL_HOLES = st.builds(
    lambda latency_s, hole: Line(latency_s, hole / latency_s),
    st.floats(0.0002, 2),
    st.integers(LEAST_HOLE_BYTES + 1, MOST_HOLE_BYTES - 1),
)


def cost(requests: Sequence[ByteRange], line: Line) -> float:
    return sum(line.seconds(one.length) for one in requests)


@given(RANGES, LINES)
def test_each_asked_byte_is_covered_once(asked: list[ByteRange], line: Line) -> None:
    requests = coalesced(asked, line)
    assert all(one.end < other.offset for one, other in itertools.pairwise(requests))
    for one in asked:
        assert sum(request.offset <= one.offset and one.end <= request.end for request in requests) == 1


@given(RANGES, LINES)
def test_nothing_is_fetched_but_what_was_asked_for_and_holes_that_pay(asked: list[ByteRange], line: Line) -> None:
    requests = coalesced(asked, line)
    assert {one.offset for one in requests} <= {one.offset for one in asked}
    assert {one.end for one in requests} <= {one.end for one in asked}
    # Without holes: what is left of the requests are the bytes asked for.
    bare = coalesced(asked, Line(1e-12, 1e6))
    holes = sum(one.length for one in requests) - sum(one.length for one in bare)
    assert holes <= (len(bare) - len(requests)) * longest_hole(line)
    assert holes <= sum(one.length for one in bare) + len(bare) * LEAST_HOLE_BYTES


@given(RANGES, LINES)
def test_it_never_costs_more_than_asking_one_by_one(asked: list[ByteRange], line: Line) -> None:
    # The smallest holes are fetched without a calculation: they may cost as much more as they are long.
    extra = len(asked) * LEAST_HOLE_BYTES / line.bytes_per_s
    assert cost(coalesced(asked, line), line) <= cost(asked, line) + extra + 1e-9


@given(NEAR_RANGES, LINES_OF_USUAL_HOLES)
def test_no_other_way_of_joining_neighbours_costs_less(asked: list[ByteRange], line: Line) -> None:
    bare = coalesced(asked, Line(1e-12, 1e6))[:8]
    spans = bare[-1].end - bare[0].offset if bare else 0
    assume(spans <= 2 * sum(one.length for one in bare))  # holes are not longer than all that was asked for
    best = min(
        cost(joined(bare, cuts), line) for cuts in itertools.product([False, True], repeat=max(len(bare) - 1, 0))
    )
    assert cost(coalesced(bare, line), line) <= best + len(bare) / line.bytes_per_s + 1e-9


def joined(ranges: Sequence[ByteRange], cuts: Sequence[bool]) -> list[ByteRange]:
    found = list(ranges[:1])
    for one, is_cut in zip(ranges[1:], cuts, strict=True):
        if is_cut:
            found.append(one)
        else:
            found[-1] = ByteRange(found[-1].offset, one.end - found[-1].offset)
    return found


@given(RANGES, LINES, st.randoms(use_true_random=False))
def test_the_order_in_which_they_are_asked_for_changes_nothing(
    asked: list[ByteRange], line: Line, dice: object
) -> None:
    shuffled = list(asked)
    dice.shuffle(shuffled)  # type: ignore[attr-defined]
    assert coalesced(shuffled, line) == coalesced(asked, line)


@given(RANGES, LINES, st.integers(1, 32))
def test_division_keeps_the_bytes_and_pays(asked: list[ByteRange], line: Line, most: int) -> None:
    requests = coalesced(asked, line)
    pieces = divided(requests, line, most)
    assert sum(one.length for one in pieces) == sum(one.length for one in requests)
    assert coalesced(pieces, Line(1e-12, 1e6)) == requests
    assert len(pieces) <= max(len(requests), len(requests) + most - 1)
    if len(pieces) > len(requests):
        assert max(map(line.seconds, (one.length for one in pieces))) < max(
            map(line.seconds, (one.length for one in requests))
        )
        shortest = min(one.length for one in pieces if one not in requests)
        assert shortest >= 4 * line.bytes_in_a_wait


def test_what_lies_far_apart_is_not_fetched_with_all_between() -> None:
    line = Line(0.02, 100e6)  # on which two megabytes cost as much as a request
    asked = [ByteRange(number * 600_000, 32_000) for number in (0, 1, 2)]
    assert coalesced(asked, line) == asked
    near = [ByteRange(number * 60_000, 32_000) for number in (0, 1, 2)]
    assert coalesced(near, line) == [ByteRange(0, 152_000)]


def test_one_at_a_time_is_not_divided() -> None:
    assert divided([ByteRange(0, 1 << 30)], Line(), 1) == [ByteRange(0, 1 << 30)]
