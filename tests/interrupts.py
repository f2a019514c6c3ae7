"""Ctrl-C in tests: programs that a shell runs in the background, such as a test run, and their children ignore it."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

__all__ = ["interruptible"]


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Handle SIGINT in the block as a program in the foreground does, also in child processes that start in it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
