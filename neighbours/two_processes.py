"""Run two processes of one training job on this machine, and return the output of each."""

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
"""Environment variables of every program."""


def free_port() -> int:
    """Return a port of this machine on which no process listens."""
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
    """Return the output of the two processes of a program; fail the test if one exits with a code other than 0.

    Args:
        program: A Python file.
        arguments: A function from the number of a process to its arguments.
        folder: The working directory of both processes.
        environment: Variables in addition to `SETTINGS`.
        fails: Whether both must exit with another code than 0; then stderr is part of the output.
        seconds: The time limit on an idle machine.
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
    """Return the results of each mode in the two processes of a program, which runs all modes one after another."""
    address = f"127.0.0.1:{free_port()}"
    printed = two_processes(
        program, lambda number: [url, address, str(number), *modes], folder=folder, environment=environment
    )
    found = [dict(json.loads(line) for line in output.splitlines() if line.startswith('["')) for output in printed]
    return {mode: [of_one[mode] for of_one in found] for mode in modes}
