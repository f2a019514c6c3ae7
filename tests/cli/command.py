"""Run the command in this process, like typer's own tests, because a new process takes a second to import petastore."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner, Result

from petastore.cli.commands import app

__all__ = ["petastore"]

# A pipe instead of a terminal, and no environment variables from which rich infers a terminal.
_ENVIRONMENT = {"COLUMNS": "100", "LINES": "40", "NO_COLOR": "1", "FORCE_COLOR": None, "TTY_COMPATIBLE": None}


def petastore(*arguments: str | Path, **environment: str | None) -> Result:
    """Run `petastore ARGUMENTS`, and return exit code, stdout and stderr; `environment` is added to that of a pipe."""
    runner = CliRunner(env=_ENVIRONMENT | environment)
    return runner.invoke(app, [str(argument) for argument in arguments], prog_name="petastore")
