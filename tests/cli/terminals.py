"""Run the command on a pseudo-terminal, and return its output with all control sequences."""

from __future__ import annotations

import contextlib
import io
import os
import threading
from pathlib import Path

import pytest

from petastore.cli.commands import app

__all__ = ["on_a_terminal"]

_AS_A_TERMINAL = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "COLUMNS": "100", "LINES": "40"}
_NOT_SET = ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")


def on_a_terminal(*arguments: str | Path, stream: str) -> tuple[int, str, str]:
    """Run the command with `stream`, stdout or stderr, on a pseudo-terminal and the other one in a pipe.

    Returns:
        Exit code, output on the terminal, output in the pipe.
    """
    ours, theirs = os.openpty()
    shown = bytearray()

    def read() -> None:
        with contextlib.suppress(OSError):  # Linux raises it after the other side was closed
            while part := os.read(ours, 65_536):
                shown.extend(part)

    # A pseudo-terminal buffers a few kilobytes; without a reader the command would block.
    reader = threading.Thread(target=read)
    reader.start()
    pipe = io.StringIO()
    other = "stderr" if stream == "stdout" else "stdout"
    try:
        with pytest.MonkeyPatch.context() as patch, os.fdopen(theirs, "w", encoding="utf-8") as terminal:
            for name in _NOT_SET:
                patch.delenv(name, raising=False)
            for name, value in _AS_A_TERMINAL.items():
                patch.setenv(name, value)
            patch.setattr(f"sys.{stream}", terminal)
            patch.setattr(f"sys.{other}", pipe)
            with pytest.raises(SystemExit) as ended:
                app([str(argument) for argument in arguments], prog_name="petastore")
    finally:
        reader.join()
        os.close(ours)
    code = ended.value.code
    return code if isinstance(code, int) else 0, shown.decode().replace("\r\n", "\n"), pipe.getvalue()
