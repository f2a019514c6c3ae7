"""Tests of `petastore migrate` and `petastore export`: they list the files that they write, and are idempotent."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from petastore import Unischema, UnischemaField, write_dataset
from tests.cli.command import petastore


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    path = tmp_path / "numbers"
    write_dataset(path, Unischema("Numbers", [UnischemaField("id", np.int64)]), [{"id": i} for i in range(1200)])
    return path


@pytest.fixture
def meadow(tmp_path: Path, fixtures_root: Path) -> Path:
    shutil.copytree(fixtures_root / "petastorm-0.13.1" / "Meadow", tmp_path / "Meadow")
    return tmp_path / "Meadow"


def test_migrate_lists_the_files_it_writes_and_is_idempotent(meadow: Path) -> None:
    written = [
        "_common_metadata",
        "_petastore/indexes/by_id.arrow",
        "_petastore/indexes/has_title.arrow",
        "_petastore/inventory.arrow",
    ]
    planned, done, again = (
        petastore("migrate", meadow, "--dry-run"),
        petastore("migrate", meadow),
        petastore("migrate", meadow),
    )
    assert [ran.exit_code for ran in (planned, done, again)] == [0, 0, 0]
    assert planned.stdout.splitlines()[:-1] == [f"would write {path}" for path in written]
    assert "dry run, nothing was written" in planned.stdout.splitlines()[-1]
    assert done.stdout.splitlines()[:-1] == [f"wrote {path}" for path in written]
    assert "nothing to write" in again.stdout
    assert len(again.stdout.splitlines()) == 1


def test_migrate_lists_the_indexes_that_are_not_migrated(meadow: Path) -> None:
    file = next(meadow.rglob("*.parquet"))
    shutil.copy(file, file.with_name("part-99999.parquet"))
    ran = petastore("migrate", meadow)
    assert ran.exit_code == 0
    assert "row-group index 'by_id' was not converted: " in ran.stdout


def test_export_writes_the_metadata_of_petastorm(dataset: Path) -> None:
    assert petastore("export", dataset, "--dry-run").stdout.startswith("would write _common_metadata\n")
    assert petastore("export", dataset).stdout.startswith("wrote _common_metadata\n")
    metadata = pq.read_metadata(dataset / "_common_metadata").metadata
    assert b"dataset-toolkit.unischema.v1" in metadata
    assert petastore("export", dataset).exit_code == 0
