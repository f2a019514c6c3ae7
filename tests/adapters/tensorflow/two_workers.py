"""Run two workers of a TensorFlow cluster on this machine, forked from an interpreter that has imported TensorFlow."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from tests.warm_interpreters import WarmInterpreter, run_together

__all__ = ["run_two_workers"]


def run_two_workers(
    interpreter: WarmInterpreter, program: str, *arguments: object, cwd: Path | None = None
) -> list[str]:
    """Run a program as two workers with `TF_CONFIG`, and return the last line that each printed."""
    cluster = {"worker": [f"127.0.0.1:{port}" for port in itertools.islice(free_ports(), 2)]}
    workers = [
        interpreter.start(
            program,
            *arguments,
            cwd=cwd,
            env=os.environ
            | {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})}
            | {"OMP_NUM_THREADS": "1"},
        )
        for index in range(2)
    ]
    return [printed.splitlines()[-1] for printed, _ in run_together(workers)]


def free_ports() -> Iterator[int]:
    """Yield unused ports, beginning at a number that depends on this process.

    They are below the range of ephemeral ports, so the system does not assign them to other programs.
    """
    first = os.getpid() * 16 % 10_000
    for offset in range(10_000):
        port = 20_000 + (first + offset) % 10_000
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            yield port
