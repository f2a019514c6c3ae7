"""Verdicts from runs: the median ratio of the two trees within a round, and whether it keeps the bound.

A run is what one process measured: `round`, `tree` (`OURS` or `THEIRS`), and its quantities, or `error`.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from benchmarks.bench.figures import Figure, figure_of, ratio_of

__all__ = ["OURS", "QUANTITIES", "THEIRS", "Quantity", "Verdict", "judged", "turns"]

OURS, THEIRS = "ours", "theirs"

Run = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Quantity:
    """What is measured of a tree."""

    key: str
    """Its name in a run."""

    what: str
    """Its name for people."""

    unit: str
    factor: float
    """What makes a run's value one of the unit."""

    is_gain: bool = False
    """Whether more of it is better."""


QUANTITIES: Final = {
    "rate": Quantity("rate", "steady rate", "rows/s", 1, is_gain=True),
    "cpu": Quantity("cpu_a_row", "CPU a row", "µs", 1e6),
    "first": Quantity("first_batch", "first batch", "ms", 1e3),
    "memory": Quantity("peak_bytes", "peak memory", "MB", 1e-6),
    "import": Quantity("import_seconds", "import petastore", "ms", 1e3),
}


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What the runs of both trees say of one quantity."""

    quantity: Quantity
    ours: Figure | None
    """Over rounds, in the quantity's unit; a round counts by the mean of its runs."""

    theirs: Figure | None
    ratio: Figure | None
    """Ours to theirs, round by round; None where no round has both."""

    noise: float | None
    """How far the two runs of one tree in one round are apart, as a share: the median over trees and rounds."""

    bound: float
    """How much worse ours may be, as a share."""

    @property
    def is_kept(self) -> bool:
        """Whether the median of the ratios is within the bound; what was not measured is not kept."""
        if self.ratio is None:
            return False
        return self.ratio.median >= 1 - self.bound if self.quantity.is_gain else self.ratio.median <= 1 + self.bound


def turns(number: int) -> tuple[str, str, str, str]:
    """Who runs in a round, one after another. What drifts at an even pace falls on both alike.

    Example:
        >>> turns(0)
        ('theirs', 'ours', 'ours', 'theirs')
        >>> turns(1)
        ('ours', 'theirs', 'theirs', 'ours')
    """
    return (THEIRS, OURS, OURS, THEIRS) if number % 2 == 0 else (OURS, THEIRS, THEIRS, OURS)


def judged(runs: Sequence[Run], quantity: Quantity, bound: float) -> Verdict:
    """The verdict on a quantity. A round in which a run failed does not count.

    Example:
        >>> runs = [{"round": 0, "tree": tree, "rate": rate} for tree, rate in ((OURS, 98), (THEIRS, 100))]
        >>> verdict = judged(runs, QUANTITIES["rate"], 0.03)
        >>> verdict.ratio.median, verdict.is_kept
        (0.98, True)
    """
    broken = {run["round"] for run in runs if run.get(quantity.key) is None}
    whole = [run for run in runs if run["round"] not in broken]
    ours, theirs = (_by_round([run for run in whole if run["tree"] == tree], quantity) for tree in (OURS, THEIRS))
    apart = [max(values) / min(values) - 1 for values in _together(whole, quantity.key) if len(values) > 1]
    return Verdict(
        quantity,
        figure_of(ours, quantity.key),
        figure_of(theirs, quantity.key),
        ratio_of(ours, theirs, quantity.key),
        statistics.median(apart) if apart else None,
        bound,
    )


def _by_round(runs: Sequence[Run], quantity: Quantity) -> list[dict[str, Any]]:
    rounds = sorted({run["round"] for run in runs})
    means = [statistics.fmean(run[quantity.key] for run in runs if run["round"] == number) for number in rounds]
    return [{"round": number, quantity.key: mean * quantity.factor} for number, mean in zip(rounds, means, strict=True)]


def _together(runs: Sequence[Run], key: str) -> Iterator[list[float]]:
    """Values of one tree in one round."""

    def place(run: Run) -> tuple[int, str]:
        return run["round"], run["tree"]

    for _, found in itertools.groupby(sorted(runs, key=place), key=place):
        yield [run[key] for run in found]
