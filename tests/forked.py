"""Run a function in a forked child process, and report its error."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from typing import Any

from tests.pace import LONG

__all__ = ["answer_of_child", "forked", "forked_with_a_pipe"]


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


def answer_of_child(run: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a forked child, and return its result, which is pickled.

    Raises:
        AssertionError: The child did not answer in time, or failed.
    """
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=lambda: there.send(run(*arguments)))
    child.start()
    there.close()
    with here:
        if not here.poll(LONG):
            child.kill()
        try:
            answer = here.recv()
        except EOFError:
            answer = None
    child.join(LONG)
    assert child.exitcode == 0, "the child failed or did not answer; its standard error has the reason"
    return answer
