"""Run a function in a forked child process, and report its error."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

__all__ = ["forked", "forked_with_a_pipe"]


def forked(run: Callable[[], object]) -> int:
    """Fork a child that runs a function, and return its pid; the child exits with 1 if the function fails."""
    child = os.fork()
    if child:
        return child
    try:
        run()
    except BaseException as problem:  # noqa: BLE001 - a child ends here
        print(repr(problem), file=sys.stderr)
        os._exit(1)
    os._exit(0)


def forked_with_a_pipe(run: Callable[[int], object]) -> tuple[int, int]:
    """Fork a child that runs a function with the write end of a pipe; return its pid and the read end, to be closed."""
    there, here = os.pipe()
    child = forked(lambda: run(here))
    os.close(here)
    return child, there
