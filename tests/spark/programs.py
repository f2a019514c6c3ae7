"""Spark programs for tests: one process per kind of session runs all steps of that kind, and tests read the results."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.pace import patience

__all__ = ["Left", "SparkPrograms", "kinds"]

SECONDS = 600
"""Time limit of one program on an idle machine, only to end hangs."""

_JAVA_NOTE = "NOTE: Picked up JDK_JAVA_OPTIONS:"
"""Prefix of a line that Java prints only because of options that tests set."""


@dataclasses.dataclass(frozen=True)
class Left:
    """Results of one part of a program: its folder, its facts, and stderr of the whole program."""

    folder: Path
    facts: Any
    stderr: str


class SparkPrograms:
    """Starts the program of each kind of session when a test first needs it, once per pytest worker.

    Args:
        folders: Makes the folders of the programs.
        repository: The root of the clone.
    """

    def __init__(self, folders: pytest.TempPathFactory, repository: Path) -> None:
        self._folders, self._repository = folders, repository
        self._run = functools.lru_cache(self._run_program)

    def left(self, kind: str, part: str) -> Left:
        """Return the results of a part in a kind of session; fail with the traceback if the part raised."""
        folder, stderr = self._run(kind)
        problem = folder / part / "problem.txt"
        if problem.exists():
            pytest.fail(f"{part} on {kind}:\n{problem.read_text(encoding='utf-8')}", pytrace=False)
        facts = folder / part / "facts.json"
        assert facts.exists(), f"{part} did not run on {kind}: {stderr[-5000:]}"
        return Left(folder / part, json.loads(facts.read_text(encoding="utf-8")), stderr)

    def _run_program(self, kind: str) -> tuple[Path, str]:
        parent = self._folders.mktemp(kind)
        folder = parent / "out"
        folder.mkdir()
        ran = subprocess.run(
            [sys.executable, "-m", "tests.spark.one_session", kind, str(folder)],
            cwd=self._repository,
            env=environment_of(kind, parent),
            capture_output=True,
            text=True,
            check=False,
            timeout=patience(SECONDS),
        )
        lines = ran.stderr.splitlines(keepends=True)
        # No check of the exit code: `left` names the parts that failed or did not run.
        return folder, "".join(line for line in lines if not line.startswith(_JAVA_NOTE))


def kinds(*names: str) -> Sequence[Any]:
    """Return parameters for kinds of sessions; all but the classic one are slow."""
    return [name if name == "classic" else pytest.param(name, marks=pytest.mark.slow) for name in names]


def environment_of(kind: str, folder: Path) -> Mapping[str, str]:
    """Return the environment variables for the program of a kind, which may write into the folder."""
    environment = dict(os.environ)
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_REMOTE"):
        environment.pop(name, None)
    # Executors of a cluster run elsewhere, and their Python imports `tests.spark.forking_daemon`.
    paths = [str(Path(__file__).parents[2]), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    if kind == "local-cluster":
        # Workers of local-cluster keep their logs in SPARK_HOME, which must not be the installed package.
        environment["SPARK_HOME"] = str(folder / "spark")
        (folder / "spark").mkdir()
        for part in Path(next(iter(pyspark.__path__))).iterdir():
            (folder / "spark" / part.name).symlink_to(part)
    if kind == "connect":
        environment["PATH"] = path_without_java(folder / "programs")
    return environment


def path_without_java(folder: Path) -> str:
    """Fill a folder with links to all programs on PATH except `java`, and return it as a PATH."""
    folder.mkdir()
    for directory in os.environ["PATH"].split(os.pathsep):
        for program in Path(directory).iterdir() if Path(directory).is_dir() else ():
            link = folder / program.name
            if program.is_file() and not program.name.startswith("java") and not link.is_symlink():
                link.symlink_to(program)
    return str(folder)
