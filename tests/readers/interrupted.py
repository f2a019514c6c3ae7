"""Open, iterate and close readers, with Ctrl-C at each bytecode in turn: `python -m tests.readers.interrupted`.

Arguments: the URL of a dataset, the first bytecode, and the step from one to the next. Prints the number of interrupts.
If a `with` block does not end within a minute, the program prints all stacks and exits with an error.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
from types import FrameType
from typing import Any

import petastore
from petastore.adapters.torch import DataLoader

_NET_S = 60.0


class Interrupt:
    """Trace function that sends a signal at the n-th bytecode of petastore in the main thread.

    It sends a signal, as Ctrl-C does. A trace function could raise where no signal can, such as between the end of a
    `with` block and the release of its lock.
    """

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_globals.get("__name__", "").startswith("petastore."):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            self.left -= 1
            if self.left == 0:
                sys.settrace(None)
                signal.setitimer(signal.ITIMER_REAL, 2e-5)  # the signal comes after this function has returned
        return self


def read(url: str, number: int) -> bool:
    """Return whether the interrupt came before the reader ended."""
    interrupt = Interrupt(number)
    faulthandler.dump_traceback_later(_NET_S, exit=True)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    sys.settrace(interrupt)
    try:
        with petastore.make_reader(url, shuffle_rows=True, seed=number, workers_count=2) as reader:
            for _ in DataLoader(reader, batch_size=20):
                pass
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
        faulthandler.cancel_dump_traceback_later()
    return interrupt.left <= 0


def main(url: str, first: int, step: int) -> None:
    """Interrupt at one bytecode after another until a reader ends before the interrupt."""
    read(url, sys.maxsize)  # imports all modules
    number = first
    while read(url, number):
        number += step
    print((number - first) // step)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
