"""Tests of cached selections after a file is rewritten in place with the same size and an equal footer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from petastore import NGram, col, make_batch_reader
from petastore.predicates import in_set

ROWS = 1000


def table_of(day: int) -> pa.Table:
    """Return a table whose file has the same size and footer for each day, because only the order of values differs."""
    folds = (1 + np.arange(ROWS)) % 5
    folds[1:] = np.random.default_rng(day).permutation(folds[1:])
    return pa.table({"fold": folds, "second": np.cumsum(1 + 9 * (folds == 0))})


def write_and_look(path: Path, table: pa.Table) -> int:
    """Write the file; return its modification time."""
    pq.write_table(table, path, compression="none")
    return path.stat().st_mtime_ns


def write_local(path: Path, table: pa.Table) -> None:
    """Write the file until its modification time differs: times of file systems have ticks of milliseconds."""
    path.parent.mkdir(exist_ok=True)
    before = path.stat().st_mtime_ns if path.exists() else None
    while before == write_and_look(path, table):
        pass


def local(folder: Path) -> tuple[dict[str, Any], Callable[[pa.Table], None]]:
    return {"dataset_url_or_urls": str(folder)}, lambda table: write_local(folder / "part.parquet", table)


def in_a_filesystem_of_arrow(folder: Path) -> tuple[dict[str, Any], Callable[[pa.Table], None]]:
    below = fs.SubTreeFileSystem(str(folder.parent), fs.LocalFileSystem())
    return {"dataset_url_or_urls": folder.name, "filesystem": below}, local(folder)[1]


def in_memory(folder: Path) -> tuple[dict[str, Any], Callable[[pa.Table], None]]:
    def write(table: pa.Table) -> None:
        with fsspec.filesystem("memory").open(f"/{folder.parent.name}/part.parquet", "wb") as file:
            pq.write_table(table, file, compression="none")

    return {"dataset_url_or_urls": f"memory://{folder.parent.name}"}, write


@pytest.mark.parametrize("storage", [local, in_a_filesystem_of_arrow, in_memory], ids=lambda made: made.__name__)
@pytest.mark.parametrize(
    "asked",
    [{"filters": col("fold") != 4}, {"predicate": in_set({0, 1, 2, 3}, "fold")}],
    ids=lambda asked: next(iter(asked)),
)
def test_filter_of_a_rewritten_file_is_evaluated_again(storage: Any, asked: Any, tmp_path: Path) -> None:
    options, write = storage(tmp_path / "data")
    for day in (1, 2):
        write(table_of(day))
        for _ in range(2):
            with make_batch_reader(**options, **asked, filter_cache=tmp_path / "selections") as reader:
                folds = np.concatenate([batch["fold"] for batch in reader.iter_batches(ROWS)])
            assert sorted(folds.tolist()) == sorted([0, 1, 2, 3] * (ROWS // 5))
    assert len(list((tmp_path / "selections").iterdir())) == 2


def test_windows_of_a_rewritten_file_are_computed_again(tmp_path: Path) -> None:
    options, write = local(tmp_path / "data")
    pairs = NGram({0: ["fold"], 1: ["fold"]}, delta_threshold=1, timestamp_field="second")
    for day in (1, 2):
        write(table_of(day))
        for _ in range(2):
            with make_batch_reader(**options, schema_fields=pairs, filter_cache=tmp_path / "windows") as reader:
                folds = np.concatenate([batch["fold"] for batch in reader.iter_batches(ROWS)])
            assert (folds[:, 1] != 0).all()
    assert len(list((tmp_path / "windows").iterdir())) == 2
