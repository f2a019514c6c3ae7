"""Checks of windows of consecutive rows, which Petastorm calls n-grams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .data import numbers, petastorm

ROWS = 20


def _pairs() -> Any:
    """Return an NGram of each row and its successor."""
    return petastorm("petastorm.ngram").NGram({0: ["id"], 1: ["id", "double"]}, 1, "id")


def _starts(folder: Path, **asked: Any) -> list[int]:
    """Return the first ids of all windows over two row groups, after checking each window."""
    url = numbers(folder, ROWS)
    found = []
    with petastorm().make_reader(url, schema_fields=_pairs(), reader_pool_type="dummy", **asked) as reader:
        for window in reader:
            assert (window[1].id, window[1].double) == (window[0].id + 1, 2 * window[1].id)
            found.append(int(window[0].id))
    return found


def windows_lie_across_row_groups(folder: Path) -> None:
    """Petastorm makes windows only within a row group."""
    found = _starts(folder, shuffle_row_groups=False)
    assert found == list(range(ROWS - 1)), f"{len(found)} of {ROWS - 1} windows"


def windows_are_shuffled(folder: Path) -> None:
    """Petastorm shuffles rows before it makes windows, and then finds the rows unsorted."""
    found = _starts(folder, shuffle_rows=True, seed=1)
    assert sorted(found) == list(range(ROWS - 1)), f"{len(found)} of {ROWS - 1} windows"
    assert found != sorted(found)


def windows_come_in_batches(folder: Path) -> None:
    """Petastorm's batch reader does not support windows."""
    url = numbers(folder, ROWS)
    with petastorm().make_batch_reader(url, schema_fields=_pairs(), reader_pool_type="dummy") as reader:
        found = sum(len(batch.double) for batch in reader)
    assert found == ROWS - 1, f"{found} of {ROWS - 1} windows"
