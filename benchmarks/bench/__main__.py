"""Command `python -m benchmarks.bench`: run workloads, print tables, and publish on request."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.bench.drive import Pace
from benchmarks.bench.machine import facts
from benchmarks.bench.page import page_of, report_of
from benchmarks.bench.roster import CONTENDERS
from benchmarks.bench.rounds import Bench
from benchmarks.bench.tables import aligned, failures, restlessness, rows_of_workload
from benchmarks.bench.venvs import EnvironmentUnavailableError, python_of
from benchmarks.bench.workloads import WORKLOADS

__all__ = ["main"]

_ROOT: Final = Path(__file__).resolve().parents[2]
PUBLISHED: Final = _ROOT / "benchmarks" / "results.json"
REPORT: Final = _ROOT / "benchmarks" / "report.md"
PAGE: Final = _ROOT / "docs" / "explanation" / "benchmarks.md"
CHART: Final = _ROOT / "docs" / "images" / "benchmarks.svg"
_QUICK: Final[dict[str, Any]] = {
    "workloads": ["tabular", "images", "tensors"],
    "contenders": ["limit", "petastore", "petastore, unshuffled", "Petastorm", "Petastorm, row groups only"],
    "rounds": 3,
    "seconds": 2.0,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what was asked; the exit status says whether all of petastore's own contenders ran."""
    asked = _parsed(arguments)
    folder = Path(asked.folder)
    results: dict[str, Any] = {"machine": facts(), "workloads": {}}
    bench = Bench(folder.absolute(), asked.rounds, Pace(asked.seconds, asked.patience), asked.scale)
    kept = folder / "results.json"
    for workload in asked.workloads:
        results["workloads"][workload] = bench.run(workload, asked.contenders)
        kept.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        print(f"\n{workload}: {WORKLOADS[workload].what}")
        print(aligned(rows_of_workload(results["workloads"][workload])))
        said = [restlessness(results["workloads"][workload]), *failures(results["workloads"][workload])]
        print("\n".join(filter(None, said)), flush=True)
    print("\n" + "\n".join(f"{name}: {fact}" for name, fact in results["machine"].items()))
    if asked.publish:
        _publish(results, folder)
    return int(_failed(results))


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench", description=__doc__)
    names = list(dict.fromkeys(contender.name for contender in CONTENDERS))
    parser.add_argument("--quick", action="store_true", help="the main workloads, few contenders, few minutes")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, metavar="NAME", help=f"of {', '.join(WORKLOADS)}")
    parser.add_argument("--contenders", nargs="+", choices=names, metavar="NAME", help=f"of: {'; '.join(names)}")
    parser.add_argument("--rounds", type=int, help="processes of each contender (5)")
    parser.add_argument("--seconds", type=float, help="the steady state lasts at least this long (4)")
    parser.add_argument("--patience", type=float, default=30.0, help="seconds after which an epoch is cut (30)")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the rows, to try things out (1)")
    parser.add_argument("--folder", default=str(_ROOT / ".bench"), help="keeps environments and data (.bench)")
    parser.add_argument("--publish", action="store_true", help="write the page, the report, the chart and results.json")
    asked = parser.parse_args(arguments)
    usual = {"workloads": list(WORKLOADS), "contenders": [], "rounds": 5, "seconds": 4.0}
    for option, value in (_QUICK if asked.quick else usual).items():
        if getattr(asked, option) is None:
            setattr(asked, option, value)
    return asked


def _publish(results: dict[str, Any], folder: Path) -> None:
    """Workloads that did not run keep what was published of them."""
    before = json.loads(PUBLISHED.read_text(encoding="utf-8"))["workloads"] if PUBLISHED.exists() else {}
    found = {**before, **results["workloads"]}
    results = {**results, "workloads": {name: found[name] for name in WORKLOADS if name in found}}
    PUBLISHED.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page_of(results), encoding="utf-8")
    REPORT.write_text(report_of(results), encoding="utf-8")
    try:
        python = python_of("chart", folder / "venvs")
        chart = Path(__file__).with_name("chart.py")
        subprocess.run([str(python), str(chart), str(PUBLISHED), str(CHART)], check=True)
    except (EnvironmentUnavailableError, subprocess.CalledProcessError) as error:
        print(f"the chart was not drawn: {error}", file=sys.stderr)
    print("wrote", *(path.relative_to(_ROOT) for path in (PAGE, REPORT, CHART, PUBLISHED)))


def _failed(results: dict[str, Any]) -> bool:
    return any(
        "error" in run
        for result in results["workloads"].values()
        for found in result["contenders"].values()
        if found["role"] == "ours"
        for run in found["runs"]
    )


if __name__ == "__main__":
    sys.exit(main())
