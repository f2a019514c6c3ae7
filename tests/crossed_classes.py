"""Print the classes of petastore that a first batch instantiates: `python -m tests.crossed_classes FOLDER`.

A profiler in all threads records from `make_reader` to torch's tensors. An earlier reader has imported all modules, so
only objects that each reader creates are counted. Exceptions and classes without an `__init__` are not recorded.
"""

from __future__ import annotations

import sys
import threading
from types import FrameType

from petastore import make_reader
from petastore.adapters.torch import DataLoader
from tests.crossed_files import BATCH, write_frames


def first_batch(folder: str) -> None:
    """Read one batch with a new reader."""
    with make_reader(folder) as reader:
        next(iter(DataLoader(reader, batch_size=BATCH)))


def main(folder: str) -> None:
    """Write a dataset, read a batch, and record the classes that a second reader instantiates for its first batch."""
    write_frames(folder, rows=1_000)
    first_batch(folder)
    made: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        # Named tuples are created by a lambda whose first argument is `_cls`; dataclasses have a generated `__init__`.
        name, code = frame.f_code.co_name, frame.f_code
        if event != "call" or name not in {"__init__", "<lambda>", "__new__"} or not code.co_argcount:
            return
        first = frame.f_locals.get(code.co_varnames[0])
        if name == "__init__" or (isinstance(first, type) and code.co_varnames[0] in {"_cls", "cls"}):
            kind = first if isinstance(first, type) else type(first)
            if kind.__module__.split(".")[0] == "petastore":
                made.add(f"{kind.__module__}.{kind.__qualname__}")

    threading.setprofile(note)
    sys.setprofile(note)
    first_batch(folder)
    sys.setprofile(None)
    threading.setprofile(None)
    print(*sorted(made), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1])
