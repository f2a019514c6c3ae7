"""Tables of a workload's results: aligned text for a terminal, and Markdown for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.bench.figures import Figure, best_of, figure_of, ratio_of, shortened

__all__ = ["aligned", "failures", "markdown", "restlessness", "rows_of_workload"]

HEADER = (
    "", "rows/s", "least – most", "/ limit", "/ Petastorm", "/ best peer",
    "first batch", "from import", "first epoch", "peak MB", "order",
)  # fmt: skip
_NONE = "–"
_STEADY = 1.25


def rows_of_workload(result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The header and one row for each contender of a workload's result, as the JSON file holds it."""
    runs: dict[str, list[Mapping[str, Any]]] = {
        name: [run for run in found["runs"] if "error" not in run] for name, found in result["contenders"].items()
    }
    roles = {name: found["role"] for name, found in result["contenders"].items()}
    limit = next((runs[name] for name, role in roles.items() if role == "limit"), [])
    peers = {name: figure_of(runs[name], "rate") for name, role in roles.items() if role == "peer"}
    best = best_of(peers)
    petastorm = best_of({name: rate for name, rate in peers.items() if name.startswith("Petastorm")})
    rows: list[tuple[str, ...]] = [HEADER]
    for name, found in result["contenders"].items():
        if not runs[name]:
            rows.append((name, "failed", *[_NONE] * (len(HEADER) - 2)))
            continue
        rate = figure_of(runs[name], "rate")
        rows.append(
            (
                name,
                _text(rate),
                _spread(rate),
                _ratio(runs[name], limit),
                _ratio(runs[name], runs[petastorm] if petastorm else []),
                _ratio(runs[name], runs[best] if best else []),
                _text(figure_of(runs[name], "first_batch_of_process")),
                _text(figure_of(runs[name], "first_batch")),
                _text(figure_of(runs[name], "first_epoch")),
                _text(figure_of(runs[name], "peak_megabytes")),
                _order(found),
            )
        )
    return rows


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns of equal width: the first to the left, others to the right.

    Example:
        >>> print(aligned([("", "rows/s"), ("ours", "12"), ("theirs", "3")]))
                rows/s
        ours        12
        theirs       3
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """The same for a page.

    Example:
        >>> print(markdown([("", "rows/s"), ("ours", "12")]))
        | | rows/s |
        |:--|--:|
        | ours | 12 |
    """
    lines = ["|" + "|".join(f" {cell} " if cell else " " for cell in row) + "|" for row in rows]
    return "\n".join([lines[0], "|:--" + "|--:" * (len(rows[0]) - 1) + "|", *lines[1:]])


def restlessness(result: Mapping[str, Any]) -> str:
    """A warning where the limit itself, which always does the same work, did not keep its rate; empty otherwise."""
    limits = [found["runs"] for found in result["contenders"].values() if found["role"] == "limit"]
    rate = figure_of(limits[0], "rate") if limits else None
    if rate is None or rate.most < _STEADY * rate.least:
        return ""
    return (
        f"The machine was busy: the limit itself varied by a factor of {rate.most / rate.least:.1f} between rounds, so "
        "the ratios have the same uncertainty."
    )


def failures(result: Mapping[str, Any]) -> list[str]:
    """A line for each contender that failed at least once, with its last error."""
    return [
        f"{name} failed: {errors[-1]}"
        for name, found in result["contenders"].items()
        if (errors := [run["error"] for run in found["runs"] if "error" in run])
    ]


def _text(figure: Figure | None) -> str:
    return _NONE if figure is None else shortened(figure.median)


def _spread(figure: Figure | None) -> str:
    return _NONE if figure is None else f"{shortened(figure.least)} – {shortened(figure.most)}"


def _ratio(runs: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> str:
    figure = ratio_of(runs, others, "rate")
    return _NONE if figure is None else f"{figure.median:.2f}"


def _order(found: Mapping[str, Any]) -> str:
    """What the check saw of the order: whether rows still follow the one that they follow in the data, and how long."""
    check = found.get("check") or {}
    if "followers" not in check:
        return _NONE
    if check["ascending"]:
        return "in order"
    return "shuffled" if check["followers"] < 0.05 else f"runs of {round(1 / (1 - check['followers'])):,}"
