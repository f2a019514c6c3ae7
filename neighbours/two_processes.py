"""Two processes of one training on this machine, each with what it printed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from neighbours.conftest import REPOSITORY
from tests.pace import patience

__all__ = ["SETTINGS", "free_port", "outcomes_of", "two_processes"]

SETTINGS = {
    "JAX_PLATFORMS": "cpu",
    "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo",
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(REPOSITORY),
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
"""What every program is told."""


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def two_processes(
    program: Path,
    arguments: Callable[[int], Sequence[str]],
    *,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    fails: bool = False,
    seconds: float = 60,
) -> list[str]:
    """What the two processes of a program printed; the test fails where one ends with another code than 0.

    Args:
        program: A Python file.
        arguments: Of the process with this number.
        folder: Where they run.
        environment: Besides `SETTINGS`.
        fails: Whether both have to end with another code; then errors are a part of what they printed.
        seconds: How long they may take on an idle machine.
    """
    started = [
        subprocess.Popen(
            [sys.executable, str(program), *arguments(number)],
            cwd=folder,
            env=os.environ | SETTINGS | dict(environment or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    try:
        printed = [process.communicate(timeout=patience(seconds)) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    for process, (output, errors) in zip(started, printed, strict=True):
        if (process.returncode != 0) != fails:
            pytest.fail(f"{program.name} ended with {process.returncode}:\n{output}\n{errors}", pytrace=False)
    return [output + errors if fails else output for output, errors in printed]


def outcomes_of(
    program: Path, url: str, modes: Sequence[str], *, folder: Path, environment: Mapping[str, str]
) -> dict[str, list[Any]]:
    """What came of each mode in the two processes of a program, which takes all modes one after another."""
    address = f"127.0.0.1:{free_port()}"
    printed = two_processes(
        program, lambda number: [url, address, str(number), *modes], folder=folder, environment=environment
    )
    found = [dict(json.loads(line) for line in output.splitlines() if line.startswith('["')) for output in printed]
    return {mode: [of_one[mode] for of_one in found] for mode in modes}
