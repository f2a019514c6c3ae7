"""A pace is cut when somebody is refused, grows when nobody is, and believes nothing that cannot be."""

from __future__ import annotations

import dataclasses
import itertools
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.storage.ranges.pacing.pace import LIMIT_LASTS_S, Pace


def turns(pace: Pace, now: float, seconds: float) -> tuple[Pace, list[float]]:
    """When requests begin of somebody who makes as many as there are turns; each is answered."""
    at: list[float] = []
    until = now + seconds
    while now < until:
        turn, wait = pace.next_turn(now)
        if turn is not None:
            at.append(now + wait)
            pace = turn.answered(now + wait, 1)
        now += wait
    return pace, at


def test_requests_begin_one_after_the_other_at_the_pace() -> None:
    _, at = turns(Pace.after_refusal(0.0, made_per_s=100.0), 0.0, 1.0)
    assert at[0] == pytest.approx(0.2)
    gaps = [later - before for before, later in itertools.pairwise(at)]
    assert max(gaps) <= 1 / 70 + 1e-9
    assert min(gaps) > 1 / 200


def test_nobody_gets_a_turn_long_before_it() -> None:
    pace = Pace.after_refusal(0.0, made_per_s=10.0)
    given = 0
    while (turn := pace.next_turn(0.0)[0]) is not None:
        pace, given = turn, given + 1
    assert given <= 5
    assert pace.next_turn(0.0) == (None, 0.5)


def test_who_is_refused_soon_after_the_first_adds_what_it_makes_and_only_once() -> None:
    pace = Pace.after_refusal(0.0, made_per_s=10.0)
    assert pace.refused(0.1, 20.0, is_new=True).per_s == pytest.approx(21.0)
    assert pace.refused(0.1, 20.0, is_new=False) == pace


def test_later_refusals_cut_to_what_is_answered_and_those_of_a_moment_count_once() -> None:
    pace = Pace.after_refusal(0.0, made_per_s=1000.0).answered(1.0, 80)
    cut = pace.refused(1.0, 1000.0, is_new=False)
    assert cut.per_s == pytest.approx(0.7 * 80)
    assert cut.refused(1.3, 1000.0, is_new=True) == cut
    assert cut.next_turn(1.0)[1] == pytest.approx(0.2)


def test_it_passes_the_old_number_slowly_and_then_grows_fast() -> None:
    cut = Pace.after_refusal(0.0, made_per_s=1000.0).answered(1.0, 100).refused(1.0, 0.0, is_new=False)
    grown = {seconds: (cut.next_turn(1.0 + seconds)[0] or cut).per_s for seconds in (3, 4, 5, 10)}
    assert grown[3] < 100 < grown[4] < grown[5] < 120
    assert grown[10] > 5 * grown[5]


def test_it_is_over_when_nobody_was_refused_for_long() -> None:
    pace = Pace.after_refusal(0.0, made_per_s=5.0)
    assert not pace.is_over(LIMIT_LASTS_S)
    assert pace.is_over(LIMIT_LASTS_S + 1)


@given(
    st.lists(
        st.tuples(st.sampled_from(["refused", "turn", "answered"]), st.floats(0, 3), st.floats(0, 1e9)), max_size=60
    )
)
def test_whatever_happens_others_can_take_it_for_what_it_is(events: list[tuple[str, float, float]]) -> None:
    now, pace = 1000.0, Pace.after_refusal(1000.0, made_per_s=50.0)
    for what, seconds, number in events:
        now += seconds
        if what == "refused":
            pace = pace.refused(now, number, is_new=number > 1)
        elif what == "answered":
            pace = pace.answered(now, int(number))
        else:
            pace = pace.next_turn(now)[0] or pace
        assert pace.next_turn(now)[1] <= 0.5
        assert (Pace.unpacked(pace.packed(), now) == pace) != pace.is_over(now)


@pytest.mark.parametrize(
    "wrong",
    [
        {"per_s": 0.0},
        {"per_s": math.nan},
        {"per_s": 1e9},
        {"next_at": 1100.0},
        {"next_at": math.inf},
        {"refused_at": 1e6},
        {"grown_at": 2000.0},
        {"answers": -1.0},
        {"answered_per_s": -1.0},
        {"answered_per_s": math.nan},
    ],
)
def test_what_cannot_be_is_nothing(wrong: dict[str, float]) -> None:
    pace = Pace.after_refusal(1000.0, made_per_s=50.0)
    assert Pace.unpacked(pace.packed(), 1000.0) == pace
    assert Pace.unpacked(dataclasses.replace(pace, **wrong).packed(), 1000.0) is None


@given(st.binary(max_size=200))
def test_bytes_of_others_are_nothing(data: bytes) -> None:
    assert Pace.unpacked(data, 1000.0) is None
    assert Pace.unpacked(struct.pack("<8s", b"petapac1") + data, 1000.0) is None or len(data) == 64
