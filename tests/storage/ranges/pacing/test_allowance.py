"""Who is throttled asks for less, and for more again when it goes well."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from petastore.storage.ranges.pacing.allowance import Allowance


@given(st.integers(1, 64), st.lists(st.sampled_from(["throttled", "answered", "time"]), max_size=300))
def test_it_stays_between_one_and_the_most(most: int, events: list[str]) -> None:
    now = [0.0]
    allowance = Allowance(most, clock=lambda: now[0])
    for event in events:
        if event == "time":
            now[0] += 1
        else:
            getattr(allowance, event)()
        assert 1 <= allowance.now <= most


def test_requests_that_are_throttled_together_count_once() -> None:
    now = [0.0]
    allowance = Allowance(16, clock=lambda: now[0])
    found = []
    for now[0] in (0, 0.1, 0.2, 0.3, 1, 2, 3, 4):
        allowance.throttled()
        found.append(allowance.now)
    assert found == [8, 8, 8, 4, 2, 1, 1, 1]


def test_it_grows_back_by_one_for_each_round_of_answers() -> None:
    allowance = Allowance(16)
    allowance.throttled()
    rounds = 0
    while allowance.now < 16:
        for _ in range(allowance.now + 1):
            allowance.answered()
        rounds += 1
    assert 7 <= rounds <= 8
