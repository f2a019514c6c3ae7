"""Run functions in child processes, forked from a process with all imports, and kill them if they hang."""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Final, ParamSpec, TypeVar

__all__ = ["RunFailedError", "alone"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

_IMPORTED_BEFORE: Final = (
    "dlio_benchmark.main",
    "dlio_benchmark.framework.torch_framework",
    "dlio_benchmark.data_loader.torch_data_loader",
    "benchmarks.accelerators.loaders",
    "benchmarks.accelerators.limit",
    "simplejpeg",
)

_ENVIRONMENT: Final = {
    "DFTRACER_ENABLE": "0",  # DLIO's tracer is on by default, and its time would count as waiting
    "MPI4PY_RC_INITIALIZE": "0",  # DLIO's main initializes MPI in each process
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "0",
}


class RunFailedError(Exception):
    """A process did not end well; the message is the last that it said."""


def alone(seconds: float, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """What a function gives, in a process of its own.

    Args:
        seconds: After which it is ended.
        function: Of a module; it may start processes.
        *args: Its arguments, which can be pickled.
        **kwargs: As these.

    Raises:
        RunFailedError: It raised, ended without a word, or took longer.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_IMPORTED_BEFORE))
    os.environ.update(_ENVIRONMENT)
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_told, args=(there, function, args, kwargs))
    process.start()
    there.close()
    try:
        if not here.poll(seconds):
            raise RunFailedError(f"{function.__name__} was not done after {seconds:.0f} s")
        good, found = here.recv()
    except EOFError:
        raise RunFailedError(f"{function.__name__} ended without a word") from None
    else:
        if not good:
            raise RunFailedError(found)
        return found
    finally:
        process.join(10)
        _end(process)
        here.close()


def _told(there: Connection, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    os.setpgid(0, 0)  # its own process group, so that its children end with it
    try:
        there.send((True, function(*args, **kwargs)))
    except BaseException:  # noqa: BLE001 - sent to the parent
        there.send((False, traceback.format_exc()))


def _end(process: Any) -> None:
    if process.is_alive():
        os.killpg(process.pid, signal.SIGKILL)
    process.join()
