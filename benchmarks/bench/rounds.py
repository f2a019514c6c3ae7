"""Runs contenders in turn: data and environments first, then a check of what each hands over, then rounds."""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.bench.drive import Pace
from benchmarks.bench.process import TaskFailedError, run_task
from benchmarks.bench.roster import FORMATS, Contender, contenders_for
from benchmarks.bench.venvs import OWN, EnvironmentUnavailableError, python_of
from benchmarks.bench.workloads import WORKLOADS

__all__ = ["Bench", "recipe_of"]

_MAKE_SECONDS: Final = 1800.0
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
    say: Callable[[str], object] = lambda line: print(line, file=sys.stderr, flush=True)

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
            self._make_format(workload, contender.format)
            checked = self._task(workload, contender, "check", limit=_MAKE_SECONDS, patience=self.pace.patience)
        except _Failure as error:
            self.say(f"{workload}: {contender.name} cannot take part: {error}")
            found["runs"].append({"round": 0, "error": str(error)})
            return found
        versions = checked.pop("versions")
        return found | {"check": checked, "versions": versions}

    def _measured(self, workload: str, contender: Contender) -> dict[str, Any]:
        limit = 3 * max(self.pace.patience, self.pace.seconds) + _MARGIN_SECONDS
        pace = dataclasses.asdict(self.pace)
        try:
            run = self._task(workload, contender, "measure", limit=limit, **pace)
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

    def _task(self, workload: str, contender: Contender, do: str, *, limit: float, **more: Any) -> dict[str, Any]:
        task = {
            "do": do,
            "workload": workload,
            "scale": self.scale,
            "module": contender.module,
            "folder": str(self._data(workload) / contender.format),
            "options": dict(contender.options),
            **more,
        }
        return run_task(python_of(contender.environment, self.folder / "venvs"), task, limit_seconds=limit)

    def _make_format(self, workload: str, name: str) -> None:
        """Writes a format and those that it needs, unless they are there."""
        if name == "values":
            self._make(workload, name, OWN, {"do": "make"})
            return
        wanted = FORMATS[name]
        for needed in ("values", *wanted.needs):
            self._make_format(workload, needed)
        self._make(workload, name, wanted.environment, {"do": "write", "module": wanted.module})

    def _make(self, workload: str, name: str, environment: str, task: dict[str, Any]) -> None:
        folder = self._data(workload) / name
        made, recipe = folder.with_suffix(".made"), recipe_of(workload, name)
        if made.exists() and made.read_text(encoding="utf-8") == recipe:
            return
        shutil.rmtree(folder, ignore_errors=True)
        python, began = python_of(environment, self.folder / "venvs"), time.monotonic()
        given = {"workload": workload, "scale": self.scale, "folder": str(folder), **task}
        run_task(python, given, limit_seconds=_MAKE_SECONDS)
        made.write_text(recipe, encoding="utf-8")
        self.say(f"{workload}: {name} written in {time.monotonic() - began:.0f} s")

    def _data(self, workload: str) -> Path:
        return self.folder / "data" / (workload if self.scale == 1.0 else f"{workload}-{self.scale:g}")


def recipe_of(workload: str, name: str) -> str:
    """What a format is made of: when that changes, or a format that it needs, it is made again."""
    made_by = hashlib.sha256(repr(WORKLOADS[workload]).encode())
    sources = ["values.py"]
    if name != "values":
        made_by.update("".join(recipe_of(workload, needed) for needed in ("values", *FORMATS[name].needs)).encode())
        sources = ["contenders/packed.py", f"contenders/{FORMATS[name].module}.py"]
    for source in sources:
        made_by.update(Path(__file__).parent.joinpath(source).read_bytes())
    return made_by.hexdigest() + "\n"
