"""Two workers of a TensorFlow cluster on this machine, forked from an interpreter that has imported TensorFlow."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from pathlib import Path

from tests.warm_interpreters import WarmInterpreter, run_together

__all__ = ["run_two_workers"]


def run_two_workers(
    interpreter: WarmInterpreter, program: str, *arguments: object, cwd: Path | None = None
) -> list[str]:
    """Return what each of two workers printed last; `TF_CONFIG` says which worker each is."""
    with contextlib.ExitStack() as stack:
        ports = [stack.enter_context(held_port()).getsockname()[1] for _ in range(2)]
        cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
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


def held_port() -> socket.socket:
    """Bind a port that nobody else gets meanwhile but a gRPC server of this user, which shares ports."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind(("127.0.0.1", 0))
    return held
