"""Program of a test: writes a dataset repeatedly, and kills each writer at another function call.

The argument is the directory. Prints JSON: the versions that readers saw after each kill, and the files left over after
the overwrites in between.
"""

from __future__ import annotations

import collections
import importlib
import json
import os
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import petastore
from petastore.schema import Unischema, UnischemaField
from petastore.writers.encode import encode_rows
from tests.forked import forked_with_a_pipe
from tests.killed_at_call import call_count, points, run_until_call
from tests.tier import sized

WHILE_ROWS, AT_COMMIT = sized(full=8, quick=2), sized(full=32, quick=10)
"""The number of writers of each mode that are killed before and after the last row is written."""

LAST = (8, 6, 4, 2, 0)
"""More writers are killed this many calls before the end. An append commits in its last calls, whose number varies."""

CODE = ("writers", "storage", "cache")
SCHEMA = Unischema("versions", [UnischemaField("version", "int64"), UnischemaField("id", "int64")])
ROWS = 240
"""Rows of a version, in three files of two row groups."""


def rows(version: int) -> list[dict[str, int]]:
    return [{"version": version, "id": number} for number in range(ROWS)]


def write(directory: Path, version: int, mode: Any, tell: Callable[[int], object] | None = None) -> None:
    petastore.write_dataset(
        directory, SCHEMA, rows(version), mode=mode, rows_per_file=80, rows_per_row_group=40, progress=tell
    )


def seen(directory: Path) -> list[tuple[int, int, int]]:
    """Return for each version that a reader sees: its number, its rows, and its distinct rows."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*data file.s. that its inventory does not list", UserWarning)
        reader = petastore.make_batch_reader(directory, workers_count=1)
    with reader:
        found = [(int(v), int(i)) for batch in reader for v, i in zip(batch.version, batch.id, strict=True)]
    of = {version: [row for one, row in found if one == version] for version, _ in found}
    return [(version, len(ids), len(set(ids))) for version, ids in sorted(of.items())]


def told_by(run: Callable[[int], None]) -> bytes:
    """Return the bytes that a child writes into its pipe before it exits with 0."""
    child, there = forked_with_a_pipe(run)
    with os.fdopen(there, "rb") as pipe:
        told = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    return told


def versions_seen(directory: Path) -> list[int]:
    """Return the versions that a reader in a child sees; fail unless each is complete, with each row once."""

    def tell(end: int) -> None:
        os.write(end, json.dumps(seen(directory)).encode())

    told = json.loads(told_by(tell))
    assert all(counts == [ROWS, ROWS] for _, *counts in told), told
    return [version for version, *_ in told]


def files_of(directory: Path) -> collections.Counter[str]:
    """Return the names of all files except the lock file, with tokens replaced."""
    found = (path for path in directory.rglob("*") if path.is_file() and path.name != ".lock")
    return collections.Counter(re.sub("[0-9a-f]{32}", "TOKEN", str(path.relative_to(directory))) for path in found)


def main(folder: Path) -> None:
    """Kill writers, and read after each; every fifth version, a writer completes."""
    directory, fresh = folder / "dataset", folder / "fresh"
    outcome: dict[str, Any] = {"old": [], "new": [], "other": [], "left": []}
    encode_rows(rows(0)[:1], SCHEMA)  # imports modules once for all children
    importlib.import_module("petastore.front")
    for place in (directory, fresh):
        told_by(lambda _, place=place: write(place, 0, "overwrite"))  # type: ignore[misc]
    standing, version = [0], 0
    for mode in ("append", "overwrite"):

        def run(say_rows_are_written: Callable[[], None]) -> None:
            def tell(done: int) -> None:
                if done == ROWS:
                    say_rows_are_written()

            write(directory, version, mode, tell)  # noqa: B023 - runs before the next version

        version += 1
        with_rows, total = call_count(run, *CODE)
        standing = [*standing, version] if mode == "append" else [version]
        for call in [
            *points(1, with_rows, WHILE_ROWS),
            *points(with_rows + 1, total, AT_COMMIT),
            *(total - n for n in LAST),
        ]:
            version += 1
            new = [*standing, version] if mode == "append" else [version]
            run_until_call(run, call, *CODE)
            found = versions_seen(directory)
            if found in (standing, new):
                outcome["old" if found == standing else "new"].append((mode, call))
            else:
                outcome["other"].append((version, mode, standing, found))
            standing = found
            if version % 5 == 0:
                told_by(lambda _, version=version: write(directory, -version, "overwrite"))  # type: ignore[misc]
                standing = [-version]
                outcome["left"] += sorted(files_of(directory) - files_of(fresh))
    print(json.dumps(outcome))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
