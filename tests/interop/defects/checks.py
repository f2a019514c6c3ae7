"""All checks by name. Run as a program, it runs each check in its own process and prints the result.

python -m tests.interop.defects.checks          # with Petastorm installed: shows its defects
"""

from __future__ import annotations

import inspect
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

from . import caches, metadata, rows, selecting, shards, values, windows, workers

__all__ = ["CHECKS"]

_PATIENCE_S = 60

CHECKS: dict[str, Callable[[Path], None]] = {
    name: function
    for module in (rows, windows, shards, selecting, values, caches, workers, metadata)
    for name, function in vars(module).items()
    if not name.startswith("_")
    and inspect.isfunction(function)
    and list(inspect.signature(function).parameters) == ["folder"]
}


def _outcome(name: str) -> str:
    """Run a check in a new process; return `right`, or the last line of its error."""
    command = [sys.executable, "-m", __spec__.name, name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PATIENCE_S)
    except subprocess.TimeoutExpired:
        return f"hung for {_PATIENCE_S} s"
    if done.returncode == 0:
        return "right"
    return (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1][:160]


def main() -> None:
    """Run the named check in this process, or all checks in one process each."""
    if sys.argv[1:]:
        warnings.simplefilter("ignore")
        with tempfile.TemporaryDirectory() as folder:
            CHECKS[sys.argv[1]](Path(folder))
        return
    for name in CHECKS:
        print(f"{name}: {_outcome(name)}", flush=True)


if __name__ == "__main__":
    main()
