"""Print the source files of petastore that run for each batch of a loader: `python -m tests.crossed_files FOLDER`.

A profiler in all threads records calls from `make_reader` to torch's tensors, in the middle of an epoch. By then all
files are open and validated, and the next epoch is planned.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import FrameType

import numpy as np

import petastore
from petastore import Unischema, UnischemaField, make_reader, write_dataset
from petastore.adapters.torch import DataLoader
from petastore.codecs import NdarrayCodec

SCHEMA = Unischema(
    "Frames",
    [UnischemaField("id", "int64"), UnischemaField("x", "float32", (64, 64), NdarrayCodec())],
)
ROWS, BATCH, EPOCHS = 6_000, 32, 8
BATCHES = ROWS // BATCH


def write_frames(folder: str, rows: int = ROWS) -> None:
    """Write a dataset of arrays of 16 KiB."""
    frames = ({"id": number, "x": np.full((64, 64), number, np.float32)} for number in range(rows))
    write_dataset(folder, SCHEMA, frames, rows_per_file=1_000, rows_per_row_group=100)


def main(folder: str) -> None:
    """Write a dataset, read four epochs, and record which files run in the first half of the fifth epoch."""
    write_frames(folder)
    home = str(Path(petastore.__file__).parent)
    crossed: set[str] = set()
    watching = threading.Event()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and watching.is_set() and frame.f_code.co_filename.startswith(home):
            crossed.add(frame.f_code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    with make_reader(folder, num_epochs=EPOCHS) as reader:
        for number, _ in enumerate(DataLoader(reader, batch_size=BATCH)):
            if number == 4 * BATCHES + BATCHES // 16:
                watching.set()
            if number == 4 * BATCHES + BATCHES // 2:
                watching.clear()
                break
    sys.setprofile(None)
    print(*sorted(str(Path(name).relative_to(home)) for name in crossed), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1])
