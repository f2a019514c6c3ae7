"""Chart of the benchmark page: the rate of each contender as a share of the limit, for each workload.

    python benchmarks/bench/chart.py RESULTS.json CHART.svg

Runs in an environment that has matplotlib and nothing else of ours.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["draw", "main", "shares_of"]

_COLOURS = {"ours": "#3f51b5", "peer": "#9e9e9e", "hand-made": "#d0d0d0", "limit": "#e0a030"}
_ACROSS = 2


def shares_of(result: Mapping[str, Any]) -> list[tuple[str, str, float]]:
    """Name, role and share of the limit's rate, for each contender that ran and is no limit; best last."""
    rates = {
        name: (found["role"], statistics.median(rates))
        for name, found in result["contenders"].items()
        if (rates := [run["rate"] for run in found["runs"] if "rate" in run])
    }
    limits = [rate for role, rate in rates.values() if role == "limit"]
    whole = limits[0] if limits else max((rate for _, rate in rates.values()), default=math.nan)
    shares = [(name, role, rate / whole) for name, (role, rate) in rates.items() if role != "limit"]
    return sorted(shares, key=lambda share: share[2])


def draw(results: Mapping[str, Any], picture: Path) -> None:
    """One panel a workload."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams |= {"svg.hashsalt": "petastore", "font.size": 8, "svg.fonttype": "none"}
    import matplotlib.pyplot as plt

    workloads = results["workloads"]
    down = math.ceil(len(workloads) / _ACROSS)
    figure, panels = plt.subplots(down, _ACROSS, figsize=(10, 2.6 * down), squeeze=False, layout="constrained")
    for panel in panels.flat[len(workloads) :]:
        panel.set_axis_off()
    for panel, (name, result) in zip(panels.flat, workloads.items(), strict=False):
        shares = shares_of(result)
        bars = panel.barh([bar[0] for bar in shares], [bar[2] for bar in shares])
        for bar, (_, role, share) in zip(bars, shares, strict=True):
            bar.set_color(_COLOURS[role])
            panel.annotate(f" {share:.2f}", (share, bar.get_y() + bar.get_height() / 2), va="center")
        panel.axvline(1, color=_COLOURS["limit"], linewidth=1.5)
        panel.set_title(name, loc="left", fontweight="bold")
        panel.set_xlim(0, max(1.15, 1.15 * max((share for *_, share in shares), default=1)))
        panel.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("rows a second, as a share of the limit")
    figure.savefig(picture, metadata={"Date": None})


def main(results_file: str, picture: str) -> None:
    """Draws the results of a file."""
    draw(json.loads(Path(results_file).read_text(encoding="utf-8")), Path(picture))


if __name__ == "__main__":
    main(*sys.argv[1:])
