"""Run both trees in turns: `import petastore`, and every requested workload."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.against.imports import import_seconds
from benchmarks.against.trees import Tree
from benchmarks.against.verdicts import OURS, THEIRS, turns
from benchmarks.bench.data import Data, to_stderr
from benchmarks.bench.drive import Pace
from benchmarks.bench.process import TaskFailedError
from benchmarks.bench.roster import Contender
from benchmarks.bench.rounds import measured

__all__ = ["SETTLE_S", "Comparison"]

SETTLE_S: Final = 61.0
"""Seconds after which files are believed that nobody wrote to meanwhile."""

Run = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """How two trees are compared.

    Args:
        ours: This one.
        theirs: The other.
        data: What both read.
        rounds: Each has two processes of either tree.
        pace: How long each measures.
        settle_s: How old files are at least before they are read. For a minute after a write petastore verifies them
            in every epoch; what is compared is the steady state after that.
        say: Takes a line of progress.
    """

    ours: Tree
    theirs: Tree
    data: Data
    rounds: int
    pace: Pace
    settle_s: float = SETTLE_S
    say: Callable[[str], object] = to_stderr

    def import_runs(self) -> list[Run]:
        """How long the import of either takes."""
        return list(self._in_turns("import", lambda tree: {"import_seconds": import_seconds(tree.root)}))

    def runs(self, workload: str, contender: Contender) -> list[Run]:
        """What a contender measures of either, reading the same files.

        Raises:
            TaskFailedError: The files could not be written.
        """
        self._let_settle(self.data.make(workload, contender.format))

        def measure(tree: Tree) -> Mapping[str, Any]:
            return measured(self.data, workload, contender, self.pace, root=tree.root)

        return list(self._in_turns(f"{workload}, {contender.name}", measure))

    def _let_settle(self, folder: Path) -> None:
        """Waits until files are old enough."""
        changed = max(path.stat().st_ctime for path in (folder, *folder.rglob("*")))
        left = changed + self.settle_s - time.time()
        if left > 0:
            self.say(f"{folder.name}: waits {left:.0f} s until what was just written is believed")
            time.sleep(left)

    def _in_turns(self, what: str, measure: Callable[[Tree], Mapping[str, Any]]) -> Iterator[Run]:
        trees = {OURS: self.ours, THEIRS: self.theirs}
        for number in range(self.rounds):
            self.say(f"{what}: round {number + 1} of {self.rounds}")
            for turn in turns(number):
                run: Run = {"round": number, "tree": turn}
                try:
                    yield {**run, **measure(trees[turn])}
                except TaskFailedError as error:
                    self.say(f"{what}: {trees[turn].name} failed: {error}")
                    yield {**run, "error": str(error)}
