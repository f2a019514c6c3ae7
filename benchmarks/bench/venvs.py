"""Virtual environments of contenders: created on first use, and again when their pinned versions change."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

__all__ = ["OWN", "PINS", "EnvironmentUnavailableError", "python_of"]

OWN = "own"
"""The environment that runs the harness: petastore's."""

PINS = Path(__file__).with_name("environments.toml")
_LIMIT_SECONDS = 1800


class EnvironmentUnavailableError(Exception):
    """pip could not make an environment; the message is the end of what it said."""


def python_of(name: str, folder: Path) -> Path:
    """The Python of an environment, which is installed into `folder/name` unless it is there already.

    Raises:
        EnvironmentUnavailableError: pip failed.
    """
    if name == OWN:
        return Path(sys.executable)
    steps = tomllib.loads(PINS.read_text(encoding="utf-8"))[name]["steps"]
    venv, holds = folder / name, folder / name / "holds.json"
    python = venv / "bin" / "python"
    if holds.exists() and json.loads(holds.read_text(encoding="utf-8")) == steps:
        return python
    shutil.rmtree(venv, ignore_errors=True)
    print(f"installing {name} into {venv} (minutes, once)", file=sys.stderr, flush=True)
    # Debian's Python has no ensurepip, so this environment's pip installs into the new environment.
    _run([sys.executable, "-m", "venv", "--without-pip", str(venv)])
    for step in steps:
        _run([sys.executable, "-m", "pip", "--python", str(python), "install", "-q", *step])
    holds.write_text(json.dumps(steps), encoding="utf-8")
    return python


def _run(command: list[str]) -> None:
    environment = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=_LIMIT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise EnvironmentUnavailableError(f"{' '.join(command)} took more than {_LIMIT_SECONDS} s") from None
    if done.returncode:
        raise EnvironmentUnavailableError(" ".join(done.stderr.split())[-500:] or f"exit status {done.returncode}")
