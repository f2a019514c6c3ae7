"""Run one task in its own process, and sample the memory of the process and its descendants.

Memory is the sum of the proportional set sizes (PSS) of the process tree: pages that several processes share are
counted once. It is sampled, so a peak between two samples is missed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import psutil

__all__ = ["ROOT", "TaskFailedError", "environment_of", "run_task"]

ROOT: Final = Path(__file__).resolve().parents[2]
"""This tree: the folder that holds `benchmarks` and `petastore`."""

_SAMPLE_SECONDS: Final = 0.2


class TaskFailedError(Exception):
    """The process of a task did not end well; the message is the last that it said."""


def run_task(python: Path, task: dict[str, Any], *, limit_seconds: float, root: Path = ROOT) -> dict[str, Any]:
    """What the task gave, with `peak_bytes`.

    Args:
        python: Of the contender's environment.
        task: As `benchmarks.bench.drive` takes it.
        limit_seconds: When it is ended.
        root: Where `benchmarks` is found, and `petastore` where the environment's own is not meant.

    Raises:
        TaskFailedError: It failed, or took longer than the limit and was ended.
    """
    with tempfile.TemporaryDirectory() as folder:
        task_file, result_file, said = Path(folder, "task.json"), Path(folder, "result.json"), Path(folder, "said")
        task_file.write_text(json.dumps(task | {"started": time.monotonic()}), encoding="utf-8")
        command = [str(python), "-m", "benchmarks.bench.drive", str(task_file), str(result_file)]
        with said.open("wb") as log:
            process = subprocess.Popen(
                command, cwd=root, env=environment_of(root), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
            try:
                peak = _watch(process, limit_seconds)
            finally:
                _end_all(process)
        if process.returncode or not result_file.exists():
            raise TaskFailedError(_last_words(said, process.returncode))
        result: dict[str, Any] = json.loads(result_file.read_text(encoding="utf-8"))
        return result | {"peak_bytes": peak}


def environment_of(root: Path) -> dict[str, str]:
    """Variables of a process that imports from a tree first; environments of contenders do not have it installed."""
    return os.environ | {"PYTHONPATH": str(root), "PYTHONUNBUFFERED": "1"}


def _watch(process: subprocess.Popen[bytes], limit_seconds: float) -> int:
    began, peak = time.monotonic(), 0
    while True:
        peak = max(peak, _tree_bytes(process.pid))
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_SAMPLE_SECONDS)
            return peak
        if time.monotonic() - began > limit_seconds:
            raise TaskFailedError(f"not done after {limit_seconds:.0f} s")


def _tree_bytes(pid: int) -> int:
    total = 0
    with contextlib.suppress(psutil.Error):
        parent = psutil.Process(pid)
        for process in (parent, *parent.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                total += int(process.memory_full_info().pss)
    return total


def _end_all(process: subprocess.Popen[bytes]) -> None:
    """Nothing of a contender meets the next one; its session is a process group of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _last_words(said: Path, status: int | None) -> str:
    lines = [line.strip() for line in said.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return (lines[-1] if lines else f"exit status {status} without a word")[:300]
