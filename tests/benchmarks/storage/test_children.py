"""Tests of the reading processes of the storage benchmark: they report each epoch, and wrong values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.storage.children import Child, one_epoch
from benchmarks.storage.far import Bench
from benchmarks.storage.reading import value_of

pytestmark = pytest.mark.slow

ROWS = 1000


@pytest.fixture
def table(tmp_path: Path) -> Path:
    ids = np.arange(ROWS)
    pq.write_table(pa.table({"id": ids, "value": value_of(ids)}), tmp_path / "right.parquet")
    pq.write_table(pa.table({"id": ids, "value": value_of(ids) + (ids == 7)}), tmp_path / "wrong.parquet")
    return tmp_path


def test_benchmark_process_reports_each_epoch(table: Path) -> None:
    asked = ("benchmarks.storage.reading", "table", str(table / "right.parquet"), ROWS)
    with Child(*asked, epochs=3, workers_count=1) as child:
        first = child.epoch()
        child.go_on()
        second = child.epoch()
    for told in (first, second):
        assert (told["rows"], told["distinct"], told["wrong"]) == (ROWS, ROWS, 0)
        assert told["seconds"] > 0
    assert not child.is_alive


def test_benchmark_process_detects_a_wrong_value(table: Path) -> None:
    told = one_epoch("benchmarks.storage.reading", "table", str(table / "wrong.parquet"), ROWS, workers_count=1)
    assert told["wrong"] == 1


def test_failed_benchmark_process_reports_the_cause(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"no epoch, exit status 1: .*DatasetNotFoundError"):
        one_epoch("benchmarks.storage.reading", "table", str(tmp_path / "none"), ROWS)


def test_benchmark_data_is_created_again_only_when_its_recipe_changes(tmp_path: Path) -> None:
    bench, made = Bench(tmp_path), []
    for recipe in ("a", "a", "b"):
        folder = bench.made("bucket/table", recipe, lambda folder: made.append(folder))
        assert folder.is_dir()
    assert made == [tmp_path / "s3" / "bucket" / "table"] * 2
