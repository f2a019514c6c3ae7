"""Files that contenders read: written once, reused by later runs, and written again when their inputs change."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from benchmarks.bench.process import ROOT, run_task
from benchmarks.bench.roster import FORMATS
from benchmarks.bench.venvs import OWN, python_of
from benchmarks.bench.workloads import WORKLOADS

__all__ = ["MAKE_SECONDS", "Data", "recipe_of", "to_stderr"]

MAKE_SECONDS: Final = 1800.0
"""What takes longer to make has failed."""


def to_stderr(line: str) -> None:
    """Says a line of progress, beside the results."""
    print(line, file=sys.stderr, flush=True)


@dataclasses.dataclass(frozen=True)
class Data:
    """Where the files lie, and who writes them.

    Args:
        folder: Keeps data and environments.
        scale: Share of the rows; 1.0 is the workload.
        say: Takes a line of progress.
        root: The tree that writes: the folder that holds `benchmarks`, and `petastore` as it is to write.
        writer: Stands for what that tree holds. Files of another writer are made again.
    """

    folder: Path
    scale: float = 1.0
    say: Callable[[str], object] = to_stderr
    root: Path = ROOT
    writer: str = ""

    def folder_of(self, workload: str) -> Path:
        """The formats of a workload lie in it, in folders of their names."""
        return self.folder / "data" / (workload if self.scale == 1.0 else f"{workload}-{self.scale:g}")

    def make(self, workload: str, name: str) -> Path:
        """Writes a format and those that it needs, unless they are there.

        Raises:
            TaskFailedError: It could not be written.
            EnvironmentUnavailableError: There is nothing to write it with.
        """
        if name == "values":
            return self._made(workload, name, OWN, {"do": "make"})
        wanted = FORMATS[name]
        for needed in ("values", *wanted.needs):
            self.make(workload, needed)
        return self._made(workload, name, wanted.environment, {"do": "write", "module": wanted.module})

    def _made(self, workload: str, name: str, environment: str, task: dict[str, Any]) -> Path:
        folder = self.folder_of(workload) / name
        made, recipe = folder.with_suffix(".made"), recipe_of(workload, name) + self.writer
        if made.exists() and made.read_text(encoding="utf-8") == recipe:
            return folder
        made.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        python, began = python_of(environment, self.folder / "venvs"), time.monotonic()
        given = {"workload": workload, "scale": self.scale, "folder": str(folder), **task}
        run_task(python, given, limit_seconds=MAKE_SECONDS, root=self.root)
        made.write_text(recipe, encoding="utf-8")
        self.say(f"{workload}: {name} written in {time.monotonic() - began:.0f} s")
        return folder


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
