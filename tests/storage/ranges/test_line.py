"""What requests cost is learnt from those that were made."""

from __future__ import annotations

import pytest

from petastore.storage.ranges.line import LearntLine, Line


def test_one_straggler_changes_nothing() -> None:
    learnt = LearntLine()
    for _ in range(31):
        learnt.note(0.01, 0.1, 10_000_000)
    before = learnt.line
    learnt.note(9.0, 60.0, 10_000_000)
    assert learnt.line == before == Line(0.01, 1e8)


def test_short_answers_say_nothing_of_the_bandwidth() -> None:
    learnt = LearntLine(Line(0.03, 60e6))
    for _ in range(40):
        learnt.note(0.01, 1e-6, 1000)
    assert learnt.line == Line(0.01, 60e6)


@pytest.mark.parametrize(("wait", "body"), [(0.0, 0.0), (1e9, 1e9)])
def test_what_is_learnt_has_bounds(wait: float, body: float) -> None:
    learnt = LearntLine()
    for _ in range(40):
        learnt.note(wait, body, 1 << 20)
    assert 0.0002 <= learnt.line.latency_s <= 2
    assert 1e6 <= learnt.line.bytes_per_s <= 2e9


def test_who_cannot_tell_first_byte_from_last_teaches_both_by_short_answers_and_long_ones() -> None:
    learnt = LearntLine()
    for _ in range(40):
        learnt.note(0.01, None, 1000)
        learnt.note(0.11, None, 10_000_000)
    assert learnt.line.latency_s == pytest.approx(0.01)
    assert learnt.line.bytes_per_s == pytest.approx(1e8, rel=0.1)


def test_it_follows_a_line_that_changes() -> None:
    learnt = LearntLine()
    for latency in (0.001, 0.1):
        for _ in range(40):
            learnt.note(latency, 0.01, 1 << 20)
        assert learnt.line.latency_s == latency
