"""Tests of Petastorm's row group indexes: used if the row group counts still match, rejected otherwise."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore import open_dataset
from petastore.errors import DatasetChangedError, MetadataError
from petastore.storage.metadata.row_group_index import check_petastorm_counts, read_petastorm_indexes

COUNTS = b"dataset-toolkit.num_row_groups_per_file.v1"


@pytest.fixture
def meadow(fixtures_root: Path, tmp_path: Path) -> Path:
    shutil.copytree(fixtures_root / "petastorm-0.13.1" / "Meadow", tmp_path / "Meadow")
    return tmp_path / "Meadow"


def with_key(folder: Path, value: bytes | None) -> None:
    """Replace the row group counts in `_common_metadata`."""
    found = pq.read_metadata(folder / "_common_metadata")
    kept = {key: of_key for key, of_key in found.metadata.items() if key != COUNTS}
    schema = found.schema.to_arrow_schema().remove_metadata()
    with pq.ParquetWriter(folder / "_common_metadata", schema, store_schema=False) as writer:
        writer.add_key_value_metadata(kept if value is None else {**kept, COUNTS: value})
    for checksum in folder.glob("._common_metadata.crc"):
        checksum.unlink()


def test_petastorm_index_of_unchanged_files_is_used(fixtures_root: Path) -> None:
    dataset = open_dataset(fixtures_root / "petastorm-0.13.1" / "Meadow")
    found = read_petastorm_indexes(dataset.location, dataset.inventory)
    assert repr(found["has_title"]) == "RowGroupIndex('has_title' of 'title')"
    assert len(found["by_id"].indexed_values) == dataset.inventory.num_rows
    check_petastorm_counts(dataset.location, dataset.inventory)


@pytest.mark.parametrize("release", ["0.5.1", "0.7.6"])
def test_petastorm_index_with_missing_files_is_rejected(fixtures_root: Path, release: str) -> None:
    dataset = open_dataset(fixtures_root / "petastorm-legacy" / release)
    assert len(dataset.inventory.files) == 1
    found = read_petastorm_indexes(dataset.location, dataset.inventory)
    assert len(found["id"].indexed_values) == 100
    with pytest.raises(DatasetChangedError, match=r"partition_key=p_1.* had 1 row groups .* has 0 now"):
        check_petastorm_counts(dataset.location, dataset.inventory)


def test_petastorm_index_of_changed_row_groups_is_rejected(meadow: Path) -> None:
    path = sorted(meadow.rglob("*.parquet"))[1]
    table = pq.ParquetFile(path).read()
    pq.write_table(table, path, row_group_size=1)
    dataset = open_dataset(meadow)
    with pytest.raises(DatasetChangedError, match=rf"stale: day=.*{path.name} had \d+ row groups .* has {len(table)}"):
        check_petastorm_counts(dataset.location, dataset.inventory)


def test_petastorm_index_of_other_files_is_rejected(meadow: Path) -> None:
    path = min(meadow.rglob("*.parquet"))
    shutil.copy(path, path.with_name("part-new.parquet"))
    for _ in range(2):
        dataset = open_dataset(meadow)
        with pytest.raises(DatasetChangedError, match=r"part-new.* had 0 row groups|has 0 now"):
            check_petastorm_counts(dataset.location, dataset.inventory)
        path.with_name("part-new.parquet").unlink(missing_ok=True)
        path.unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "must have Petastorm's row-group counts"),
        (b"{", "are not valid JSON"),
        (b"[]", "must be one integer per file"),
        (b'{"a": "1"}', "must be one integer per file"),
        (b"\xff", "are not valid JSON"),
    ],
)
def test_petastorm_index_without_counts_is_rejected(meadow: Path, value: bytes | None, message: str) -> None:
    with_key(meadow, value)
    dataset = open_dataset(meadow)
    with pytest.raises(MetadataError, match=message):
        check_petastorm_counts(dataset.location, dataset.inventory)


def test_petastorm_index_numbered_by_a_summary_file_is_rejected(meadow: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), meadow / "_metadata")
    dataset = open_dataset(meadow)
    with pytest.raises(
        MetadataError, match="must not have row groups: with them, Petastorm numbers row groups in an unknown order"
    ):
        check_petastorm_counts(dataset.location, dataset.inventory)


def test_plain_parquet_has_no_petastorm_index(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), tmp_path / "a.parquet")
    dataset = open_dataset(tmp_path)
    assert read_petastorm_indexes(dataset.location, dataset.inventory) == {}


def test_petastorm_row_group_counts_equal_those_of_the_footers(meadow: Path) -> None:
    told: dict[str, Any] = json.loads(pq.read_metadata(meadow / "_common_metadata").metadata[COUNTS])
    assert told == {
        str(path.relative_to(meadow)): pq.ParquetFile(path).num_row_groups for path in meadow.rglob("*.parquet")
    }
