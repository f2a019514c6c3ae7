"""Where the command `petastore` starts: it first makes sure that what the command line needs is installed."""

from __future__ import annotations

import importlib.util
import sys

from petastore.errors import MissingExtraError

__all__ = ["main"]


def main() -> None:
    """Run the command line on `sys.argv` and leave with its exit code.

    0: done. 1: a bug of ours, with a traceback. 2: something was asked or found that cannot be, in one line on stderr.
    """
    for package in ("typer", "rich"):
        if importlib.util.find_spec(package) is None:
            print(f"petastore: {MissingExtraError('the command line', package=package, extra='cli')}", file=sys.stderr)
            sys.exit(2)
    from petastore.cli.commands import app

    app(prog_name="petastore")
