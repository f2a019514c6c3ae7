"""Report of both trees as text: a table for each way of reading, and one line of conclusion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.against.verdicts import OURS, Verdict
from benchmarks.bench.figures import Figure, shortened
from benchmarks.bench.tables import aligned

__all__ = ["closing_line", "failures_of", "table_of"]

_NONE = "–"


def table_of(verdicts: Sequence[Verdict], ours: str, theirs: str) -> str:
    """A line for each quantity.

    Args:
        verdicts: One for each.
        ours: The name of this tree.
        theirs: The name of the other.
    """
    header = ("", ours, theirs, "", "ratio", "least – most", "same twice", "bound", "")
    return aligned([header, *map(_line, verdicts)])


def _line(verdict: Verdict) -> tuple[str, ...]:
    quantity, ratio = verdict.quantity, verdict.ratio
    return (
        f"  {quantity.what}",
        _value(verdict.ours),
        _value(verdict.theirs),
        quantity.unit,
        _NONE if ratio is None else f"{ratio.median:.3f}",
        _NONE if ratio is None else f"{ratio.least:.3f} – {ratio.most:.3f}",
        _NONE if verdict.noise is None else f"± {verdict.noise:.1%}",
        f"≥ {1 - verdict.bound:.3g}" if quantity.is_gain else f"≤ {1 + verdict.bound:.3g}",
        "KEPT" if verdict.is_kept else "NOT KEPT",
    )


def _value(figure: Figure | None) -> str:
    return _NONE if figure is None else shortened(figure.median)


def failures_of(runs: Sequence[Mapping[str, Any]], ours: str, theirs: str) -> list[str]:
    """A line for each tree that failed at least once, with its last error.

    Example:
        >>> failures_of([{"round": 0, "tree": "theirs", "error": "no such column"}], "this tree", "a7806d7")
        ['a7806d7 failed: no such column']
    """
    last = {run["tree"]: run["error"] for run in runs if "error" in run}
    return [f"{ours if tree == OURS else theirs} failed: {error}" for tree, error in sorted(last.items())]


def closing_line(verdicts: Mapping[str, Sequence[Verdict]], theirs: str, bound: float) -> str:
    """The answer: how many figures are kept, and which are not.

    Args:
        verdicts: By what was read.
        theirs: The name of the other tree.
        bound: How much worse this one may be, as a share.
    """
    found = [(read, verdict) for read, those in verdicts.items() for verdict in those]
    worse = [(read, verdict) for read, verdict in found if not verdict.is_kept]
    so = f"not worse than {theirs} by more than {100 * bound:g} %"
    if not worse:
        return f"KEPT: all {len(found)} figures are {so}"
    named = "; ".join(f"{read}: {_named(verdict)}" for read, verdict in worse)
    return f"NOT KEPT: {len(found) - len(worse)} of {len(found)} figures are {so}, and these are worse: {named}"


def _named(verdict: Verdict) -> str:
    return f"{verdict.quantity.what} {_NONE if verdict.ratio is None else f'{verdict.ratio.median:.3f}'}"
