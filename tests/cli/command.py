"""Runs the command in this process, as typer's own tests do: importing petastore anew takes a second each time."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner, Result

from petastore.cli.commands import app

__all__ = ["petastore"]

# No terminal, and nothing in the environment that makes rich believe in one.
_ENVIRONMENT = {"COLUMNS": "100", "LINES": "40", "NO_COLOR": "1", "FORCE_COLOR": None, "TTY_COMPATIBLE": None}


def petastore(*arguments: str | Path, **environment: str | None) -> Result:
    """Return exit code, stdout and stderr of `petastore ARGUMENTS`; variables are set over those of a pipe."""
    runner = CliRunner(env=_ENVIRONMENT | environment)
    return runner.invoke(app, [str(argument) for argument in arguments], prog_name="petastore")
