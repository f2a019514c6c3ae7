"""Compare the performance of this tree with another commit.

Both run in turns, in the same environment, on the same files, which the other commit writes. A round has four
processes, two of each tree. Ratios are computed within a round, and figures are medians over rounds. Exits with 1 if
this tree is worse by more than the bound. "same twice" is the difference between two runs of one tree within a round.
With --itself, both trees are the same, so all differences are noise.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.against.report import closing_line, failures_of, table_of
from benchmarks.against.rounds import SETTLE_S, Comparison
from benchmarks.against.trees import NoSuchCommitError, Tree, checked_out, exported
from benchmarks.against.verdicts import QUANTITIES, Verdict, judged
from benchmarks.bench.data import Data, to_stderr
from benchmarks.bench.drive import Pace
from benchmarks.bench.machine import facts
from benchmarks.bench.process import ROOT, TaskFailedError
from benchmarks.bench.roster import CONTENDERS, OURS, Contender, contenders_for
from benchmarks.bench.workloads import WORKLOADS

__all__ = ["main"]

_IMPORT: Final = "import"
_WAYS: Final = tuple(dict.fromkeys(contender.name for contender in CONTENDERS if contender.role == OURS))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures what was asked and prints it; 1 where a figure is not kept."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    if (asked.commit is None) != asked.itself:
        parser.error("name a commit to measure against, or --itself")
    with tempfile.TemporaryDirectory(prefix="petastore-against-") as folder:
        try:
            theirs = _theirs(asked, Path(folder, "that"))
        except NoSuchCommitError as error:
            parser.error(f"{asked.commit}: {error}")
        ours = checked_out(ROOT, Path(folder, "this"))
        return _compared(asked, ours, theirs)


def ways(workload: str, names: Sequence[str], reader_options: dict[str, Any]) -> list[Contender]:
    """The ways in which petastore reads a workload: those that are named, or the first of its table.

    Args:
        workload: What is read.
        names: Of contenders; none is the first that is ours.
        reader_options: What `make_reader` gets besides.
    """
    ours = [contender for contender in contenders_for(workload) if contender.role == OURS]
    chosen = [contender for contender in ours if contender.name in names] if names else ours[:1]
    return [dataclasses.replace(contender, options={**contender.options, **reader_options}) for contender in chosen]


def _compared(asked: argparse.Namespace, ours: Tree, theirs: Tree) -> int:
    data = Data(asked.folder.absolute(), asked.scale, to_stderr, theirs.root, theirs.digest)
    comparison = Comparison(ours, theirs, data, asked.rounds, Pace(asked.seconds, asked.patience), asked.settle)
    runs: dict[str, list[dict[str, Any]]] = {}
    verdicts: dict[str, list[Verdict]] = {}

    def conclude(read: str, what: str, found: list[dict[str, Any]], figures: Sequence[str]) -> None:
        runs[read] = found
        verdicts[read] = [judged(found, QUANTITIES[name], asked.bound / 100) for name in figures]
        print(f"\n{what}", table_of(verdicts[read], ours.name, theirs.name), sep="\n")
        print(*(f"  {line}\n" for line in failures_of(found, ours.name, theirs.name)), sep="", end="", flush=True)
        _keep(asked.folder / "results.json", {"ours": ours.name, "theirs": theirs.name, "runs": runs})

    print(*(f"{name}: {fact}" for name, fact in facts().items()), f"load: {os.getloadavg()[0]:.1f}", sep="\n")
    if _IMPORT in asked.figures:
        conclude(_IMPORT, "a process that imports nothing else", comparison.import_runs(), [_IMPORT])
    reading = [name for name in asked.figures if name != _IMPORT]
    for workload in asked.workloads if reading else ():
        for contender in ways(workload, asked.contenders, {"reader_pool_type": asked.pool} if asked.pool else {}):
            read = f"{workload}, {contender.name}"
            conclude(read, f"{read}: {WORKLOADS[workload].what}", _runs(comparison, workload, contender), reading)
    print(f"\n{closing_line(verdicts, theirs.name, asked.bound / 100)}")
    return int(not all(verdict.is_kept for those in verdicts.values() for verdict in those))


def _runs(comparison: Comparison, workload: str, contender: Contender) -> list[dict[str, Any]]:
    try:
        return comparison.runs(workload, contender)
    except TaskFailedError as error:
        return [{"round": 0, "tree": "theirs", "error": f"its files could not be written: {error}"}]


def _theirs(asked: argparse.Namespace, root: Path) -> Tree:
    return checked_out(ROOT, root, "itself") if asked.itself else exported(ROOT, asked.commit, root)


def _keep(path: Path, results: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.against", description=__doc__)
    parser.add_argument("commit", nargs="?", metavar="COMMIT", help="measure against it: a hash, a branch, HEAD~3")
    parser.add_argument("--itself", action="store_true", help="measure against a copy of this tree: noise")
    parser.add_argument("--rounds", type=_at_least_one, default=5, help="four processes each (5)")
    parser.add_argument("--bound", type=_no_less_than_zero, default=3.0, help="how much worse it may be, in %% (3)")
    parser.add_argument(
        "--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS), metavar="NAME",
        help=f"of {', '.join(WORKLOADS)} (all)",
    )  # fmt: skip
    parser.add_argument(
        "--figures", nargs="+", choices=QUANTITIES, default=list(QUANTITIES), metavar="NAME",
        help=f"of {', '.join(QUANTITIES)} (all); cpu holds on a busy machine, too",
    )  # fmt: skip
    parser.add_argument(
        "--contenders", nargs="+", choices=_WAYS, default=[], metavar="NAME",
        help=f"ways of reading, of: {'; '.join(_WAYS)} (the first that a workload has)",
    )  # fmt: skip
    parser.add_argument("--pool", choices=["thread", "process", "dummy"], help="reader_pool_type (the reader's own)")
    parser.add_argument("--seconds", type=float, default=2.0, help="the steady state lasts at least this long (2)")
    parser.add_argument("--patience", type=float, default=30.0, help="seconds after which an epoch is cut (30)")
    parser.add_argument("--settle", type=float, default=SETTLE_S, help=f"seconds that files are old ({SETTLE_S:.0f})")
    parser.add_argument(
        "--scale", type=float, default=1.0,
        help="share of the rows, in as many row groups, which cost more a row where they are small (1)",
    )  # fmt: skip
    parser.add_argument("--folder", type=Path, default=ROOT / ".bench" / "against", help="keeps data (.bench/against)")
    return parser


def _at_least_one(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError("at least one round is needed")
    return int(text)


def _no_less_than_zero(text: str) -> float:
    if not float(text) >= 0:
        raise argparse.ArgumentTypeError(f"a bound is a percentage of at least 0, not {text}")
    return float(text)


if __name__ == "__main__":
    sys.exit(main())
