"""Entry point of `petastore` and `python -m petastore.cli`.

It checks that the packages of the extra `cli` are installed.
"""

from __future__ import annotations

import importlib.util
import sys

from petastore.errors import MissingExtraError

__all__ = ["main"]


def main() -> None:
    """Run the command line with `sys.argv`, and exit with its exit code.

    Exit codes: 0 means success; 1 a bug of petastore, with a traceback; 2 an invalid argument or dataset, with one line
    on stderr.
    """
    for package in ("typer", "rich"):
        if importlib.util.find_spec(package) is None:
            print(f"petastore: {MissingExtraError('the command line', package=package, extra='cli')}", file=sys.stderr)
            sys.exit(2)
    from petastore.cli.commands import app

    app(prog_name="petastore")


if __name__ == "__main__":
    main()
