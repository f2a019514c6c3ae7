"""Command `python -m benchmarks.accelerators`, run in `.neighbours`: measure, print, and publish on request."""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
import json
import os
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from benchmarks.accelerators.data import make
from benchmarks.accelerators.figures import figures_of
from benchmarks.accelerators.page import page_of
from benchmarks.accelerators.rounds import measure
from benchmarks.accelerators.workloads import WORKLOADS, Workload
from benchmarks.bench.data import to_stderr
from benchmarks.bench.machine import facts
from benchmarks.bench.process import ROOT
from benchmarks.bench.tables import aligned
from benchmarks.storage.figures import HEADER, Figure, line_of

__all__ = ["main"]

PUBLISHED: Final = Path(__file__).with_name("results.json")
PAGE: Final = ROOT / "benchmarks" / "accelerators" / "report.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures what was asked; 1 where a bound is not kept."""
    asked = _parsed(arguments)
    if find_spec("dlio_benchmark") is None:
        sys.exit(
            "There is no dlio-benchmark here; `make accelerators` installs it into .neighbours and runs this there."
        )
    data = Path(asked.folder).absolute()
    shown = {}
    for name in asked.only:
        workload = WORKLOADS[name] if asked.scale == 1.0 else WORKLOADS[name].scaled(asked.scale)
        shown[name] = _measured(workload, data, asked.rounds) | {"rounds": asked.rounds, "scale": asked.scale}
    results = {"machine": facts(), "shown": shown}
    if asked.publish:
        _publish(results)
    kept = [Figure.parse(figure).is_kept for found in shown.values() for figure in found["figures"]]
    return int(False in kept)


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accelerators", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, metavar="NAME", default=list(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=3, help="of each figure (3)")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the rows, to try things out (1)")
    parser.add_argument("--folder", default=str(ROOT / ".bench" / "accelerators"), help="keeps data")
    parser.add_argument("--publish", action="store_true", help=f"write the page and {PUBLISHED.relative_to(ROOT)}")
    return parser.parse_args(arguments)


def _measured(workload: Workload, data: Path, rounds: int) -> dict[str, Any]:
    """One table, printed."""
    make(workload, data, to_stderr)
    load, began = os.getloadavg()[0], time.monotonic()
    print(f"\n{workload.name}: {workload.what}", flush=True)
    figures = figures_of(measure(workload, data, rounds, to_stderr))
    load_after = os.getloadavg()[0]
    print(aligned([HEADER, *map(line_of, figures)]), f"\nload before {load:.1f}, after {load_after:.1f}", flush=True)
    return {
        "date": f"{dt.datetime.now(dt.UTC):%Y-%m-%d}",
        "load": load,
        "load_after": load_after,
        "seconds": time.monotonic() - began,
        "figures": [dataclasses.asdict(figure) for figure in figures],
    }


def _publish(results: dict[str, Any]) -> None:
    """What was not measured keeps what was published of it."""
    before = json.loads(PUBLISHED.read_text(encoding="utf-8"))["shown"] if PUBLISHED.exists() else {}
    found = {**before, **results["shown"]}
    results = {**results, "shown": {name: found[name] for name in WORKLOADS if name in found}}
    PUBLISHED.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page_of(results), encoding="utf-8")
    print(f"\nwrote {PAGE.relative_to(ROOT)} and {PUBLISHED.relative_to(ROOT)}")


if __name__ == "__main__":
    sys.exit(main())
