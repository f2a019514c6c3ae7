"""Command `python -m benchmarks.storage`: measure, print tables, and publish on request."""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.bench.machine import facts
from benchmarks.bench.process import ROOT
from benchmarks.bench.tables import aligned
from benchmarks.storage.far import Bench
from benchmarks.storage.figures import HEADER, Figure, line_of
from benchmarks.storage.page import page_of
from benchmarks.storage.roster import SHOWN

__all__ = ["main"]

PUBLISHED: Final = Path(__file__).with_name("results.json")
PAGE: Final = ROOT / "benchmarks" / "storage" / "report.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures what was asked; 1 where a bound is not kept or something failed."""
    asked = _parsed(arguments)
    folder = Path(asked.folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    bench, shown = Bench(folder, asked.rounds, asked.scale), {}
    for name in asked.only:
        shown[name] = _measured(name, bench) | {"rounds": asked.rounds, "scale": asked.scale, "machine": facts()}
    if asked.publish:
        _publish(shown)
    return int(any(not _is_well(found) for found in shown.values()))


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.storage", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=SHOWN, metavar="NAME", default=list(SHOWN), help=", ".join(SHOWN))
    parser.add_argument("--rounds", type=int, default=5, help="of each figure that is a time (5)")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the rows, to try things out (1)")
    parser.add_argument("--folder", default=str(ROOT / ".bench"), help="keeps environments and data (.bench)")
    parser.add_argument("--publish", action="store_true", help="write the page and benchmarks/storage/results.json")
    return parser.parse_args(arguments)


def _measured(name: str, bench: Bench) -> dict[str, Any]:
    """One table, printed; what fails is said and ends no other."""
    load, began = os.getloadavg()[0], time.monotonic()
    found: dict[str, Any] = {"date": f"{dt.datetime.now(dt.UTC):%Y-%m-%d}", "load": load}
    print(f"\n{name}: {SHOWN[name].what}", flush=True)
    try:
        figures: list[Figure] = SHOWN[name].run(bench)
    except Exception as problem:  # noqa: BLE001 - other measurements still run
        found["error"] = f"{type(problem).__name__}: {problem}"
        print(found["error"], flush=True)
    else:
        found["figures"] = [dataclasses.asdict(figure) for figure in figures]
        print(aligned([HEADER, *map(line_of, figures)]), flush=True)
    return {**found, "seconds": time.monotonic() - began}


def _is_well(found: dict[str, Any]) -> bool:
    return "error" not in found and all(Figure.parse(one).is_kept is not False for one in found["figures"])


def _publish(shown: dict[str, Any]) -> None:
    """What was not measured keeps what was published of it."""
    before = json.loads(PUBLISHED.read_text(encoding="utf-8")) if PUBLISHED.exists() else {}
    found = {**before, **shown}
    results = {name: found[name] for name in SHOWN if name in found}
    PUBLISHED.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page_of(results), encoding="utf-8")
    print(f"\nwrote {PAGE.relative_to(ROOT)} and {PUBLISHED.relative_to(ROOT)}")


if __name__ == "__main__":
    sys.exit(main())
