"""The command as somebody sees it who sits at a terminal: its output, with all that steers the terminal."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

__all__ = ["on_a_terminal"]

_AS_A_TERMINAL = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "COLUMNS": "100", "LINES": "40"}


def on_a_terminal(*arguments: str | Path, stream: str, **environment: str) -> tuple[int, str, str]:
    """Run the command with stdout or stderr on a pseudo terminal, and the other one in a pipe.

    Returns:
        Exit code, what the terminal was given, what the pipe was given.
    """
    ours, theirs = os.openpty()
    other = "stderr" if stream == "stdout" else "stdout"
    try:
        running = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "petastore.cli", *arguments],
            env={"PATH": "/usr/bin:/bin", **_AS_A_TERMINAL, **environment},
            **{stream: theirs, other: subprocess.PIPE},  # type: ignore[call-overload] # stream by name
        )
    finally:
        os.close(theirs)
    shown = bytearray()
    with running, contextlib.closing(os.fdopen(ours, "rb", buffering=0)) as terminal:
        with contextlib.suppress(OSError):  # Linux says so when nobody has the other side any more
            while part := terminal.read(65_536):
                shown += part
        pipe = running.stderr if stream == "stdout" else running.stdout
        piped = pipe.read()
    return running.returncode, shown.decode().replace("\r\n", "\n"), piped.decode()
