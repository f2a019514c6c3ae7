"""What the rounds say, and what it has to be."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final

from benchmarks.accelerators.rounds import CONFIGURED, DEMANDS
from benchmarks.storage.figures import Figure

__all__ = ["BUSY", "SHARE", "figures_of", "reach_of"]

BUSY: Final = 99.0
"""Percent of utilisation, where the limit could keep the accelerator as busy."""

SHARE: Final = 0.95
"""Of the limit's utilisation, where it could not."""


def reach_of(found: Mapping[str, Any], batch: int) -> float:
    """The utilisation that the limit could reach in a round: 1.0 where it decodes a batch in less than a step.

    Example:
        >>> reach_of({"before": 100.0, "after": 140.0, "step_s": 0.5}, batch=80)
        0.75
    """
    return min(1.0, statistics.mean((found["before"], found["after"])) * found["step_s"] / batch)


def figures_of(measured: Mapping[str, Any], batch: int) -> list[Figure]:
    """The lines of a workload's table.

    Args:
        measured: As `benchmarks.accelerators.rounds.measure` gives it.
        batch: Rows of a step.
    """
    cells = measured["cells"]
    limits = [rate for rounds in cells.values() for found in rounds for rate in (found["before"], found["after"])]
    figures = [Figure("the limit decodes", limits, "rows/s")]
    figures += [
        Figure(f"DLIO's own readers, asked for more, workers: {count}", [rate], "rows/s")
        for count, rate in measured["read_threads"].items()
    ]
    if measured["released"] is not None:
        figures.append(Figure(f"its reader as released, workers: {measured['best']}", [measured["released"]], "rows/s"))
    for demand in DEMANDS:
        figures += _cell(demand, cells[demand], batch, f"DLIO's own readers, workers: {measured['best']}")
    return figures


def _cell(demand: str, rounds: Sequence[Mapping[str, Any]], batch: int, own: str) -> list[Figure]:
    reach = [reach_of(found, batch) for found in rounds]
    could = 100 * statistics.median(reach) >= BUSY
    asked = CONFIGURED if demand == CONFIGURED else f"{demand} × the limit"
    asked += f", {statistics.median(found['step_s'] for found in rounds):.3f} s a step"
    figures = [
        Figure(f"{asked}: the limit could reach", _percent(reach), "%"),
        Figure("petastore", _percent(_all(rounds, "petastore")), "%", least=BUSY if could else None),
        Figure("petastore, the first epoch", _percent(_all(rounds, "petastore", "first_epoch")), "%"),
    ]
    if not could:
        figures.append(Figure("petastore / limit, steady", _shares(rounds, "petastore", reach), "×", least=SHARE))
    figures.append(Figure(own, _percent(_all(rounds, "own")), "%"))
    if not could:
        figures.append(Figure("the same / limit, steady", _shares(rounds, "own", reach), "×"))
    if all("ready" in found for found in rounds):
        figures.append(Figure("a loader that never waits", _percent(_all(rounds, "ready")), "%"))
    return figures


def _all(rounds: Sequence[Mapping[str, Any]], who: str, what: str = "utilisation") -> list[float]:
    return [found[who][what] for found in rounds]


def _shares(rounds: Sequence[Mapping[str, Any]], who: str, reach: Sequence[float]) -> list[float]:
    return [steady / most for steady, most in zip(_all(rounds, who, "steady"), reach, strict=True)]


def _percent(shares: Sequence[float]) -> list[float]:
    return [100 * share for share in shares]
