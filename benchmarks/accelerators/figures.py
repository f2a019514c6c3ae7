"""Results of the rounds, and the bounds that they must keep."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final

from benchmarks.accelerators.rounds import CONFIGURED, DEMANDS
from benchmarks.storage.figures import Figure

__all__ = ["BUSY", "SHARE", "figures_of"]

BUSY: Final = 99.0
"""Percent of utilisation, where the limit keeps the accelerator as busy."""

SHARE: Final = 0.95
"""Of the limit's utilisation, where it does not."""


def figures_of(measured: Mapping[str, Any]) -> list[Figure]:
    """The lines of a workload's table.

    Args:
        measured: As `benchmarks.accelerators.rounds.measure` gives it.
    """
    cells = measured["cells"]
    rates = [found["rate"] for rounds in cells.values() for found in rounds]
    figures = [Figure("the limit decodes", rates, "rows/s")]
    figures += [
        Figure(f"DLIO's own readers, asked for more, workers: {count}", [rate], "rows/s")
        for count, rate in measured["read_threads"].items()
    ]
    if measured["released"] is not None:
        figures.append(Figure(f"its reader as released, workers: {measured['best']}", [measured["released"]], "rows/s"))
    for demand in DEMANDS:
        figures += _cell(demand, cells[demand], f"DLIO's own readers, workers: {measured['best']}")
    return figures


def _cell(demand: str, rounds: Sequence[Mapping[str, Any]], own: str) -> list[Figure]:
    limit = _all(rounds, "limit")
    is_busy = statistics.median(limit) >= BUSY
    asked = CONFIGURED if demand == CONFIGURED else f"{demand} × the limit"
    asked += f", {statistics.median(found['step_s'] for found in rounds):.3f} s a step"
    figures = [
        Figure(f"{asked}: the limit", limit, "%"),
        Figure("petastore", _all(rounds, "petastore"), "%", least=BUSY if is_busy else None),
        Figure("petastore, the first epoch", _all(rounds, "petastore", "first_epoch"), "%"),
    ]
    if not is_busy:
        figures.append(Figure("petastore / limit, steady", _shares(rounds, "petastore"), "×", least=SHARE))
    figures.append(Figure(own, _all(rounds, "own"), "%"))
    if not is_busy:
        figures.append(Figure("the same / limit, steady", _shares(rounds, "own"), "×"))
    if all("ready" in found for found in rounds):
        figures.append(Figure("a loader that never waits", _all(rounds, "ready"), "%"))
    return figures


def _all(rounds: Sequence[Mapping[str, Any]], who: str, what: str = "utilisation") -> list[float]:
    """Percent of utilisation, of each round."""
    return [100 * found[who][what] for found in rounds]


def _shares(rounds: Sequence[Mapping[str, Any]], who: str) -> list[float]:
    return [found[who]["steady"] / found["limit"]["steady"] for found in rounds]
