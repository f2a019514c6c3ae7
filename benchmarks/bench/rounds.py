"""Run contenders in turns: prepare data and environments, check the batches of each, and measure rounds."""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.bench.data import MAKE_SECONDS, Data, to_stderr
from benchmarks.bench.drive import Pace
from benchmarks.bench.process import ROOT, TaskFailedError, run_task
from benchmarks.bench.roster import Contender, contenders_for
from benchmarks.bench.venvs import EnvironmentUnavailableError, python_of

__all__ = ["Bench", "measured", "run_contender"]

_MARGIN_SECONDS: Final = 120.0
_Failure = (TaskFailedError, EnvironmentUnavailableError)


@dataclasses.dataclass(frozen=True)
class Bench:
    """How a benchmark is run.

    Args:
        folder: Keeps environments and data between runs.
        rounds: Processes of each contender.
        pace: How long each measures.
        scale: Share of the rows; 1.0 is the workload.
        say: Takes a line of progress.
    """

    folder: Path
    rounds: int
    pace: Pace
    scale: float = 1.0
    say: Callable[[str], object] = to_stderr

    @property
    def data(self) -> Data:
        """What contenders read."""
        return Data(self.folder, self.scale, self.say)

    def run(self, workload: str, names: Sequence[str] = ()) -> dict[str, Any]:
        """One workload: for each contender its versions, check and runs; the turn moves by one each round."""
        chosen = [contender for contender in contenders_for(workload) if not names or contender.name in names]
        found = {contender.name: self._prepared(workload, contender) for contender in chosen}
        able = [contender for contender in chosen if not found[contender.name]["runs"]]
        load = os.getloadavg()[0]
        for number in range(self.rounds):
            first = number % len(able) if able else 0
            for contender in able[first:] + able[:first]:
                found[contender.name]["runs"].append({"round": number, **self._measured(workload, contender)})
        return {
            "workload": workload,
            "date": dt.datetime.now(dt.UTC).date().isoformat(),
            "scale": self.scale,
            "rounds": self.rounds,
            **dataclasses.asdict(self.pace),
            "load_before": load,
            "load_after": os.getloadavg()[0],
            "contenders": found,
        }

    def _prepared(self, workload: str, contender: Contender) -> dict[str, Any]:
        """What is known before the first round; an error counts as the only run."""
        found: dict[str, Any] = {"role": contender.role, "settings": contender.settings, "runs": []}
        try:
            self.data.make(workload, contender.format)
            patience = self.pace.patience
            checked = run_contender("check", self.data, workload, contender, limit=MAKE_SECONDS, patience=patience)
        except _Failure as error:
            self.say(f"{workload}: {contender.name} cannot take part: {error}")
            found["runs"].append({"round": 0, "error": str(error)})
            return found
        versions = checked.pop("versions")
        return found | {"check": checked, "versions": versions}

    def _measured(self, workload: str, contender: Contender) -> dict[str, Any]:
        try:
            run = measured(self.data, workload, contender, self.pace)
        except _Failure as error:
            self.say(f"{workload}: {contender.name} failed: {error}")
            return {"error": str(error)}
        del run["versions"]
        run["peak_megabytes"] = run.pop("peak_bytes") / 1e6
        self.say(
            f"{workload}: {contender.name}: {run['rate']:,.0f} rows/s, first batch {run['first_batch']:.2f} s, "
            f"{run['peak_megabytes']:.0f} MB"
        )
        return run


def measured(data: Data, workload: str, contender: Contender, pace: Pace, *, root: Path = ROOT) -> dict[str, Any]:
    """What a process of a contender measured, and `peak_bytes`.

    Raises:
        TaskFailedError: It failed, or took much longer than it may.
        EnvironmentUnavailableError: There is nothing to run it with.
    """
    limit = 3 * max(pace.patience, pace.seconds) + _MARGIN_SECONDS
    return run_contender("measure", data, workload, contender, limit=limit, root=root, **dataclasses.asdict(pace))


def run_contender(
    do: str, data: Data, workload: str, contender: Contender, *, limit: float, root: Path = ROOT, **more: Any
) -> dict[str, Any]:
    """Runs one task of a contender in a process of its own.

    Args:
        do: `"check"` or `"measure"`.
        data: Where its files lie.
        workload: The name of what is read.
        contender: Who reads.
        limit: Seconds after which it is ended.
        root: The tree that it is run from.
        more: What the task needs besides.
    """
    task = {
        "do": do,
        "workload": workload,
        "scale": data.scale,
        "module": contender.module,
        "folder": str(data.folder_of(workload) / contender.format),
        "options": dict(contender.options),
        **more,
    }
    return run_task(python_of(contender.environment, data.folder / "venvs"), task, limit_seconds=limit, root=root)
