"""Programs of Spark's users, each in a process and session of its own, and what they left: `facts.json` and files."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.pace import patience

_OF_JAVA_ITSELF = "NOTE: Picked up JDK_JAVA_OPTIONS:"
"""What it says where tests give it options, and to nobody else."""


@dataclasses.dataclass(frozen=True)
class Left:
    """What a program left when it ended."""

    folder: Path
    facts: Any
    stderr: str


Programs = Mapping[str, Future[Left]]
"""Of each kind of session, what a program leaves in it."""


@contextlib.contextmanager
def running(
    program: str,
    kinds: Sequence[str],
    folders: pytest.TempPathFactory,
    repository: Path,
    *,
    seconds: float,
    environment_of: Callable[[str, Path], dict[str, str] | None] = lambda _kind, _folder: None,
) -> Iterator[Programs]:
    """Runs `python -m program kind folder` for each kind, two at a time; each has `seconds` of an idle machine."""

    def run(kind: str) -> Left:
        parent = folders.mktemp(kind)
        folder = parent / "out"
        folder.mkdir()
        ran = subprocess.run(
            [sys.executable, "-m", program, kind, str(folder)],
            cwd=repository,
            env=environment_of(kind, parent),
            capture_output=True,
            text=True,
            check=False,
            timeout=patience(seconds),
        )
        assert ran.returncode == 0, ran.stderr[-5000:]
        said = "".join(line for line in ran.stderr.splitlines(keepends=True) if not line.startswith(_OF_JAVA_ITSELF))
        return Left(folder, json.loads((folder / "facts.json").read_text()), said)

    with ThreadPoolExecutor(2) as pool:
        yield {kind: pool.submit(run, kind) for kind in kinds}
