"""Tests of the tuning race: it finds the fastest setting in time, also under varying machine load."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from petastore.tuning.race import Standing, fastest, planned_trials, race
from tests.tier import examples


class Machine:
    """Settings with known rates, on a clock that only measurements advance.

    Args:
        rates: Rows per second of each setting.
        takes: The actual seconds of a measurement, as a function of the requested seconds.
    """

    def __init__(self, rates: list[float], takes: Callable[[float], float] = lambda seconds: seconds) -> None:
        self.now, self.rates, self.order, self._takes = 0.0, rates, list[int](), takes

    def clock(self) -> float:
        return self.now

    def measure(self, setting: int, seconds: float) -> float:
        self.now += self._takes(seconds)
        self.order.append(setting)
        return self.rates[setting]

    def fastest(self, seconds: float) -> int:
        return fastest(race(range(len(self.rates)), self.measure, seconds=seconds, clock=self.clock)).setting


RATES = st.lists(st.floats(1, 1e6), min_size=1, max_size=16)


@settings(max_examples=examples(400))
@given(RATES, st.floats(16, 120), st.floats(0.5, 1.5))
def test_tuning_race_finds_a_setting_within_5_percent_of_the_best_in_time(
    rates: list[float], seconds: float, slowness: float
) -> None:
    machine = Machine(rates, lambda planned: planned * slowness)
    assert rates[machine.fastest(seconds)] >= 0.95 * max(rates)
    assert machine.now <= seconds * 1.5
    assert set(machine.order) == set(range(len(rates)))


@settings(max_examples=examples(200))
@given(RATES, st.floats(1, 60), st.floats(0.1, 20))
def test_tuning_race_starts_no_measurement_after_its_time_limit(
    rates: list[float], seconds: float, took: float
) -> None:
    machine = Machine(rates, lambda _: took)
    found = race(range(len(rates)), machine.measure, seconds=seconds, clock=machine.clock)
    assert machine.now < seconds + took + 1e-6
    first_round = [0, *range(len(rates) - 1, 0, -1)]
    assert machine.order[: len(rates)] == first_round[: len(machine.order)]
    assert [len(one.rates) for one in found] == [machine.order.count(number) for number in range(len(rates))]


@settings(max_examples=examples(200))
@given(
    st.lists(st.floats(100, 1000), min_size=2, max_size=9),
    st.lists(st.floats(0.3, 1.0), min_size=64, max_size=64),
)
def test_tuning_race_compares_settings_within_a_round_under_varying_load(
    rates: list[float], loads: list[float]
) -> None:
    machine = Machine(rates)

    def measure(setting: int, seconds: float) -> float:
        rate = machine.measure(setting, seconds)
        return rate * loads[machine.order.count(0) % len(loads)]  # the reference setting comes first in each round

    found = race(range(len(rates)), measure, seconds=100, clock=machine.clock)
    assert rates[fastest(found).setting] >= 0.95 * max(rates)
    assert len(machine.order) == planned_trials(len(rates), 100)
    assert [one.ratio for one in found] == pytest.approx([rate / rates[0] for rate in rates])


def test_tuning_race_repeats_only_the_fastest_settings_in_later_rounds() -> None:
    machine = Machine([100, 50, 40, 130, 60, 110])
    found = race(range(6), machine.measure, seconds=60, clock=machine.clock)
    assert [len(one.rates) for one in found] == [12, 4, 4, 12, 8, 12]
    assert (fastest(found).setting, fastest(found).ratio) == (3, 1.3)
    assert machine.now == pytest.approx(60)


def test_tuning_race_makes_fewer_rounds_when_measurements_take_long() -> None:
    machine = Machine([100, 50, 40, 130, 60, 110], lambda _: 5.0)
    assert machine.fastest(60) == 3
    assert machine.order == [0, 5, 4, 3, 2, 1, 0, 5, 4, 3, 0, 5]


def test_tuning_race_prefers_the_first_of_equally_fast_settings() -> None:
    assert Machine([100, 102, 101]).fastest(60) == 0
    assert Machine([100, 120, 122]).fastest(60) == 1


def test_tuning_race_keeps_the_users_setting_unless_another_usually_wins() -> None:
    def standings(*ratios: float) -> list[Standing[str]]:
        return [Standing("mine", [100.0], [1.0]), Standing("other", [100.0 * one for one in ratios], list(ratios))]

    assert fastest(standings(2.0, 0.5, 1.1, 1.2, 0.9, 1.3)).setting == "mine"
    assert fastest(standings(2.0, 1.05, 1.1, 1.2, 0.9, 1.3)).setting == "other"


def test_tuning_race_measures_the_users_setting_even_without_time() -> None:
    machine = Machine([100, 200])
    assert machine.fastest(0) == 0
    assert machine.order == [0]
