"""Run programs one after another in one process, so that Spark, torch and TensorFlow start only once.

    python -m petastore.interop.petastorm tests/examples/one_after_another.py FOLDER PROGRAM …

A program is a module or a path that ends with `.py`; its argument is its own folder below FOLDER. Its output is written
to `FOLDER/NAME.txt`, and its traceback to `FOLDER/NAME.problem` if it raises.
"""

from __future__ import annotations

import contextlib
import runpy
import sys
import traceback
from pathlib import Path


def main(folder: Path, *programs: str) -> None:
    """Run all programs; after an error, the others still run."""
    with contextlib.ExitStack() as files:  # kept open, because a program may leave a log handler for its stdout
        for program in programs:
            name = Path(program).stem if program.endswith(".py") else program.rpartition(".")[2]
            (folder / name).mkdir()
            printed = files.enter_context((folder / f"{name}.txt").open("w", encoding="utf-8"))
            sys.argv = [program, str(folder / name)]
            try:
                with contextlib.redirect_stdout(printed):
                    if program.endswith(".py"):
                        runpy.run_path(program, run_name="__main__")
                    else:
                        runpy.run_module(program, run_name="__main__", alter_sys=True)
            except Exception:  # noqa: BLE001 - the test of this program shows it
                (folder / f"{name}.problem").write_text(traceback.format_exc(), encoding="utf-8")
            printed.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
