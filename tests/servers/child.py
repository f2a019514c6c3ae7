"""Run a server in its own process, so that it does not compete with the reader for the GIL."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = ["child_server"]

_ROOT = Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def child_server(module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Iterator[int]:
    """Start a server and yield the port that it prints; it ends when its standard input closes.

    Args:
        module: The module to run as a program.
        arguments: The program's arguments.
        environment: Variables to add to this process's environment.
    """
    with subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=_ROOT,
        env={**os.environ, **(environment or {}), "PYTHONPATH": str(_ROOT)},
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"{module} ended before it said where it listens")
            yield int(line)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
