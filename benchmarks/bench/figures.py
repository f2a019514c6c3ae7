"""Figures from runs: medians with their spread, and ratios of runs of the same round."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["Figure", "best_of", "figure_of", "ratio_of", "shortened"]

Run = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Figure:
    """What several runs of one contender say of one quantity."""

    median: float
    least: float
    most: float
    runs: int


def figure_of(runs: Iterable[Run], quantity: str) -> Figure | None:
    """The median and spread of a quantity over the runs that have it; None where none has.

    Example:
        >>> figure_of([{"rate": 3.0}, {"rate": 9.0}, {"error": "no"}, {"rate": 4.0}], "rate")
        Figure(median=4.0, least=3.0, most=9.0, runs=3)
    """
    values = [run[quantity] for run in runs if run.get(quantity) is not None]
    return Figure(statistics.median(values), min(values), max(values), len(values)) if values else None


def ratio_of(runs: Sequence[Run], others: Sequence[Run], quantity: str) -> Figure | None:
    """A quantity against somebody else's, round by round: a busy minute of the machine slows both.

    Example:
        >>> ours = [{"round": 0, "rate": 4.0}, {"round": 1, "rate": 2.0}]
        >>> theirs = [{"round": 0, "rate": 2.0}, {"round": 1, "rate": 1.0}, {"round": 2, "rate": 9.0}]
        >>> ratio_of(ours, theirs, "rate").median
        2.0
    """
    of_round = {run["round"]: run[quantity] for run in others if run.get(quantity)}
    ratios = [
        {"ratio": run[quantity] / of_round[run["round"]]}
        for run in runs
        if run.get(quantity) is not None and run["round"] in of_round
    ]
    return figure_of(ratios, "ratio")


def best_of(figures: Mapping[str, Figure | None]) -> str | None:
    """The name with the highest median.

    Example:
        >>> best_of({"a": Figure(1.0, 1.0, 1.0, 1), "b": Figure(2.0, 2.0, 2.0, 1), "c": None})
        'b'
    """
    known = {name: figure.median for name, figure in figures.items() if figure is not None}
    return max(known, key=known.__getitem__) if known else None


def shortened(value: float) -> str:
    """A number with three digits that matter, and its thousands apart.

    Example:
        >>> [shortened(value) for value in (4_432_198.0, 3826.4, 27.31, 0.4567)]
        ['4,430,000', '3,830', '27.3', '0.457']
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{round(value, digits):,.{max(digits, 0)}f}"
