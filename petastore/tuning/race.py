"""Successive halving: find the fastest of some settings by short, interleaved measurements in limited time. No I/O.

Each round measures all remaining settings one after the other, so that a busy moment of the machine slows all of them.
A setting is compared with the reference of the same round. After a few rounds, the slower half is left out.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

__all__ = ["TIE", "Standing", "fastest", "planned_trials", "race"]

TIE: Final = 0.03
"""Difference of rates that is too small to matter: the setting that comes first wins."""

_FINALISTS: Final = 2
"""Number of settings, besides the reference, that are measured until the end."""

_REPEATS: Final = (5, 4, 3, 2, 1)
"""Rounds before the slower half is left out: the first number for which the time is sufficient."""

_LEAST_S: Final = 1.0
"""Minimum seconds per measurement in the plan; if there is less time, there are fewer rounds instead."""

_SLACK: Final = 2.0
"""The number of rounds is reduced if the remaining measurements would need more than this many times the remaining
time."""

_MOST_ROUNDS: Final = 0.75
"""Share of the rounds in which a setting must be faster than the reference to win."""

S = TypeVar("S")


@dataclasses.dataclass(slots=True)
class Standing(Generic[S]):
    """Measurements of one setting."""

    setting: S

    rates: list[float] = dataclasses.field(default_factory=list)
    """Rows per second of each measurement."""

    ratios: list[float] = dataclasses.field(default_factory=list)
    """Each rate divided by that of the reference in the same round."""

    is_finalist: bool = True
    """Whether the setting was never left out."""

    @property
    def ratio(self) -> float:
        """Median ratio to the reference; 0 if nothing was measured."""
        return statistics.median(self.ratios) if self.ratios else 0.0

    @property
    def is_mostly_faster(self) -> bool:
        """Whether the setting was faster than the reference in most rounds."""
        return sum(ratio > 1 for ratio in self.ratios) >= _MOST_ROUNDS * len(self.ratios)


def race(
    settings: Sequence[S],
    measure: Callable[[S, float], float],
    *,
    seconds: float,
    clock: Callable[[], float],
) -> list[Standing[S]]:
    """Measure settings in rounds, and leave out the slower half again and again.

    Args:
        settings: Settings to compare; the first one is the reference, which is measured in each round.
        measure: Function that measures a setting for a number of seconds, or longer, and returns rows per second.
        seconds: Time for all measurements. No measurement begins later, except the first one of the reference.
        clock: Function that returns seconds.

    Returns:
        The measurements of each setting, in the order of `settings`.

    Example:
        >>> now, rates = [0.0], {"defaults": 100.0, "1 worker": 130.0, "4 workers": 90.0}
        >>> def measure(setting, seconds):
        ...     now[0] += seconds
        ...     return rates[setting]
        >>> found = race(list(rates), measure, seconds=60, clock=lambda: now[0])
        >>> fastest(found).setting, fastest(found).ratio
        ('1 worker', 1.3)
    """
    standings = [Standing(setting) for setting in settings]
    reference, others = standings[0], standings[1:]
    ends, spent = clock() + seconds, 0.0
    repeats, done_rounds, trials = _repeats(len(settings), seconds), 0, 0
    while True:
        left = _trials_left(len(others), repeats, done_rounds)
        for number, standing in enumerate([reference, *(others if done_rounds % 2 else others[::-1])]):
            began = clock()
            if began >= ends and reference.rates:
                return standings
            standing.rates.append(measure(standing.setting, max(ends - began, 0.0) / (left - number)))
            standing.ratios.append(standing.rates[-1] / reference.rates[-1])
            spent, trials = spent + clock() - began, trials + 1
        done_rounds += 1
        while repeats > 1 and _trials_left(len(others), repeats, done_rounds) * spent / trials > _SLACK * (
            ends - clock()
        ):
            repeats -= 1
        if done_rounds >= repeats:
            if len(others) <= _FINALISTS:
                return standings
            done_rounds, by_ratio = 0, sorted(others, key=lambda standing: -standing.ratio)
            for standing in by_ratio[max(_FINALISTS, math.ceil(len(others) / 2)) :]:
                standing.is_finalist = False
            others = [standing for standing in others if standing.is_finalist]


def planned_trials(settings: int, seconds: float) -> int:
    """Return the number of measurements that a race of this many settings takes.

    Example:
        >>> planned_trials(5, 60), planned_trials(5, 10)
        (40, 8)
    """
    return _trials_left(settings - 1, _repeats(settings, seconds), 0)


def _repeats(settings: int, seconds: float) -> int:
    return next((n for n in _REPEATS if _trials_left(settings - 1, n, 0) * _LEAST_S <= seconds), 1)


def _trials_left(others: int, repeats: int, done_rounds: int) -> int:
    """Return the number of measurements until the end of the race, without those that were done.

    Args:
        others: Number of remaining settings, without the reference.
        repeats: Rounds before settings are left out.
        done_rounds: Rounds that were done since settings were left out.
    """
    left = max(repeats - done_rounds, 0) * (others + 1)
    while others > _FINALISTS:
        others = max(_FINALISTS, math.ceil(others / 2))
        left += repeats * (others + 1)
    return left


def fastest(standings: Sequence[Standing[S]]) -> Standing[S]:
    """Return the fastest setting that was measured to the end; of several within 3 %, the first one.

    A setting must be faster than the reference in most rounds, so that noise does not replace the user's arguments.
    """
    finalists = [standing for standing in standings if standing.is_finalist and standing.ratios]
    finalists = [one for one in finalists if one is standings[0] or one.is_mostly_faster]
    best = max(standing.ratio for standing in finalists)
    return next(standing for standing in finalists if standing.ratio >= best * (1 - TIE))
