"""Checks of disk caches: stale columns, transforms and files, and cleanup."""

from __future__ import annotations

import concurrent.futures
from pathlib import Path
from typing import Any

from .data import ids_of, numbers, petastorm


def _open(url: str, cache: Path, **asked: Any) -> Any:
    kept = {"cache_type": "local-disk", "cache_size_limit": 10**8, "cache_row_size_estimate": 100}
    kept |= {"cache_location": str(cache), "cache_extra_settings": {"cleanup": False}}
    return petastorm().make_reader(url, reader_pool_type="dummy", shuffle_row_groups=False, **{**kept, **asked})


def other_columns_are_not_taken_from_a_cache(folder: Path) -> None:
    """Petastorm's cache key does not contain the columns."""
    url = numbers(folder / "data", 10)
    ids_of(_open(url, folder / "cache", schema_fields=["id"]))
    with _open(url, folder / "cache", schema_fields=["double"]) as reader:
        assert [int(row.double) for row in reader] == list(range(0, 20, 2))


def another_transform_is_not_taken_from_a_cache(folder: Path) -> None:
    """Petastorm's cache key does not contain the transform, so a reader gets the output of another one."""
    url = numbers(folder / "data", 10)
    spec = petastorm("petastorm.transform").TransformSpec
    first = spec(lambda row: {**row, "id": row["id"] + 1000})
    ids_of(_open(url, folder / "cache", transform_spec=first))
    second = spec(lambda row: {**row, "id": row["id"] + 1})
    assert ids_of(_open(url, folder / "cache", transform_spec=second)) == list(range(1, 11))


def a_file_that_was_rewritten_is_read_again(folder: Path) -> None:
    """Petastorm's cache key contains the name of a file, but not its version."""
    ids_of(_open(numbers(folder / "data", 10), folder / "cache"))
    found = ids_of(_open(numbers(folder / "data", 5), folder / "cache"))
    assert found == list(range(5)), f"the file has 5 rows, and {len(found)} came"


def a_reader_that_ends_leaves_the_cache_to_others(folder: Path) -> None:
    """Petastorm removes the whole cache directory while other readers use it."""
    url = numbers(folder / "data", 100)
    asked: dict[str, Any] = {"cache_extra_settings": None}
    with _open(url, folder / "cache", **asked) as stays, concurrent.futures.ThreadPoolExecutor(1) as other_thread:
        ids_of(_open(url, folder / "cache", **asked))
        found = other_thread.submit(lambda: [int(row.id) for row in stays]).result()
    assert found == list(range(100))
