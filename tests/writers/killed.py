"""Program of a test: writes datasets, each in a child that kills itself at one point. Argument: the directory."""

from __future__ import annotations

import functools
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from petastore.schema import Unischema, UnischemaField
from petastore.storage.metadata.manifest import write_common_metadata, write_manifest
from petastore.writers import commit, files
from petastore.writers.encode import encode_rows
from petastore.writers.local import write_dataset

SCHEMA = Unischema("numbers", [UnischemaField("id", "int64")])
OLD_ROWS, NEW_ROWS = 100, 1000
MODES = ("error", "overwrite", "append")
POINTS = (
    "in the rows",
    "before the files get their names",
    "between two names",
    "before the common metadata",
    "before the manifest",
    "after the manifest",
    "after the marker is gone",
)


def rows(start: int, count: int) -> Iterator[dict[str, int]]:
    """Yield rows with ascending ids."""
    for number in range(start, start + count):
        yield {"id": number}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dying_before(function: Callable[..., Any], call: int = 1) -> Callable[..., Any]:
    """Wrap a function so that its n-th call kills the process."""
    calls = 0

    def wrapped(*args: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            die()
        return function(*args, **more)

    return wrapped


def dying_after(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*args: Any, **more: Any) -> Any:
        function(*args, **more)
        die()

    return wrapped


def set_trap(point: str) -> None:
    """Make this process kill itself at a point."""
    if point == POINTS[0]:
        files.DataFiles.write = dying_before(files.DataFiles.write, call=25)  # type: ignore[method-assign]
    elif point == POINTS[1]:
        files.DataFiles.finish = dying_before(files.DataFiles.finish)  # type: ignore[method-assign]
    elif point == POINTS[2]:
        vars(files)["rename"] = dying_before(vars(files)["rename"], call=2)
    elif point == POINTS[3]:
        vars(commit)["write_common_metadata"] = dying_before(write_common_metadata)
    elif point == POINTS[4]:
        vars(commit)["write_manifest"] = dying_before(write_manifest)
    elif point == POINTS[5]:
        vars(commit)["write_manifest"] = dying_after(write_manifest)
    elif point == POINTS[6]:
        files.DataFiles.end = dying_after(files.DataFiles.end)  # type: ignore[method-assign]


def write(directory: Path, mode: Any, point: str) -> None:
    """Write a dataset and die; never returns."""
    set_trap(point)
    new = rows(OLD_ROWS, NEW_ROWS)
    write_dataset(directory, SCHEMA, new, mode=mode, rows_per_file=100, rows_per_row_group=30)
    os._exit(99)  # reached only if the process was not killed


def write_old(directory: Path) -> None:
    """Write the dataset that exists before; never returns."""
    write_dataset(directory, SCHEMA, rows(0, OLD_ROWS))
    os._exit(0)


def append(directory: Path, start: int) -> None:
    """Append ten times a hundred rows; never returns."""
    for number in range(start, start + 1000, 100):
        write_dataset(directory, SCHEMA, rows(number, 100), mode="append")
    os._exit(0)


def in_children(*calls: Callable[[], None]) -> list[int]:
    """Run each call in its own child, concurrently; return the exit statuses."""
    children = []
    for call in calls:
        child = os.fork()
        if child == 0:
            call()
        children.append(child)
    return [os.waitpid(child, 0)[1] for child in children]


def main(root: Path) -> None:
    """Write all datasets below `root`; print each unexpected exit."""
    encode_rows([{"id": 0}], SCHEMA)  # imports modules once for all children
    # Arrow has started threads, so Python 3.12 and newer warn at every fork; the children do not need these threads.
    warnings.filterwarnings("ignore", ".* is multi-threaded, use of fork", DeprecationWarning)
    for mode in MODES:
        for point in POINTS:
            directory = root / mode / point
            if mode != "error" and in_children(functools.partial(write_old, directory)) != [0]:
                print(f"{mode}, {point}: the old dataset could not be written")
            ends = in_children(functools.partial(write, directory, mode, point))
            if ends != [signal.SIGKILL]:
                print(f"{mode}, {point}: ended with {ends}")
    ends = in_children(*(functools.partial(append, root / "appended", start) for start in range(0, 4000, 1000)))
    if any(ends):
        print(f"appending ended with {ends}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
