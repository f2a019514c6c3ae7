"""Tests of `migrate`: petastore metadata is added to Petastorm datasets, atomically, idempotently and with indexes."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore.errors import DatasetChangedError, DatasetNotFoundError, InvalidArgumentError, MetadataError
from petastore.indexing import get_row_group_indexes
from petastore.interop import export, migrate
from petastore.schema.document import DOCUMENT_KEY
from petastore.selectors import SingleIndexSelector
from petastore.storage.metadata.manifest import COMMON_METADATA, MANIFEST
from petastore.storage.metadata.petastorm_index import PETASTORM_INDEX_KEY
from petastore.storage.metadata.petastorm_schema import PETASTORM_SCHEMA_KEY

DATASETS = ["petastorm-0.13.1/Meadow", "petastorm-legacy/0.5.1", "petastorm-legacy/0.7.6"]


@pytest.fixture
def copied(fixtures_root: Path, tmp_path: Path) -> Callable[[str], Path]:
    def copy(name: str) -> Path:
        shutil.copytree(fixtures_root / name, tmp_path / "copy")
        return tmp_path / "copy"

    return copy


@pytest.fixture
def meadow(copied: Callable[[str], Path]) -> Path:
    return copied("petastorm-0.13.1/Meadow")


def contents(folder: Path) -> dict[str, str]:
    """Return the digest of each file, by its path."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def keys(folder: Path) -> dict[bytes, bytes]:
    return dict(pq.read_metadata(folder / COMMON_METADATA).metadata or {})


def with_keys(folder: Path, changed: dict[bytes, bytes]) -> None:
    """Overwrite key-value metadata of `_common_metadata`, as another program might."""
    metadata = pq.read_metadata(folder / COMMON_METADATA)
    with pq.ParquetWriter(folder / COMMON_METADATA, metadata.schema.to_arrow_schema().remove_metadata()) as writer:
        writer.add_key_value_metadata({**(metadata.metadata or {}), **changed})


@pytest.mark.parametrize("name", DATASETS)
def test_migrate_keeps_all_rows(name: str, copied: Callable[[str], Path], fixtures_root: Path) -> None:
    folder = copied(name)
    before = contents(folder)
    migrated = migrate(folder)
    was, now = petastore.open_dataset(fixtures_root / name), petastore.open_dataset(folder)
    assert (now.schema, now.inventory, now.partition_names) == (was.schema, was.inventory, was.partition_names)
    assert (migrated.schema, migrated.inventory) == (now.schema, now.inventory)
    assert now.writer == "petastore migrate"
    after = contents(folder)
    assert {path for path in before if after[path] != before[path]} == {COMMON_METADATA}
    with petastore.make_reader(folder, shuffle_row_groups=False) as reader:
        rows = sum(1 for _ in reader)
    assert rows == was.inventory.num_rows


def test_migrate_keeps_petastorms_metadata(meadow: Path, fixtures_root: Path) -> None:
    migrate(meadow)
    theirs = keys(fixtures_root / DATASETS[0])
    assert theirs.items() - {(b"ARROW:schema", theirs.get(b"ARROW:schema", b""))} <= keys(meadow).items()
    assert DOCUMENT_KEY.encode() in keys(meadow)
    columns = [pq.read_schema(folder / COMMON_METADATA).names for folder in (meadow, fixtures_root / DATASETS[0])]
    assert columns[0] == columns[1]


def test_migrate_dry_run_writes_nothing(meadow: Path) -> None:
    before = contents(meadow)
    planned = migrate(meadow, dry_run=True)
    assert contents(meadow) == before
    assert not (meadow / "_petastore").exists()
    done = migrate(meadow)
    assert planned.written == done.written
    assert (planned.dry_run, done.dry_run) == (True, False)
    assert set(done.written) == {path for path, digest in contents(meadow).items() if before.get(path) != digest} - {
        "_petastore/.lock"
    }
    assert done.written[0] == COMMON_METADATA
    assert done.written[-1] == MANIFEST


@pytest.mark.parametrize("name", DATASETS)
def test_migrate_is_idempotent(name: str, copied: Callable[[str], Path]) -> None:
    folder = copied(name)
    migrate(folder)
    before = contents(folder)
    assert migrate(folder).written == ()
    assert contents(folder) == before


def test_migrated_dataset_does_not_read_pickles(meadow: Path, fixtures_root: Path) -> None:
    migrate(meadow)
    with_keys(meadow, {PETASTORM_SCHEMA_KEY: b"cos\nsystem\n(S'false'\ntR.", PETASTORM_INDEX_KEY: b"no pickle"})
    was = petastore.open_dataset(fixtures_root / DATASETS[0])
    assert petastore.open_dataset(meadow).schema == was.schema
    (meadow / MANIFEST).unlink()
    assert petastore.open_dataset(meadow).schema == was.schema
    migrate_again = pytest.raises(MetadataError, match=r"'os\.system'")
    with migrate_again:
        migrate(meadow)


def test_migrate_converts_indexes(meadow: Path, fixtures_root: Path) -> None:
    migrated = migrate(meadow)
    assert sorted(migrated.indexes) == ["by_id", "has_title"]
    assert migrated.left == {}
    theirs = get_row_group_indexes(petastore.open_dataset(fixtures_root / DATASETS[0]))
    ours = get_row_group_indexes(petastore.open_dataset(meadow))
    assert ours.keys() == theirs.keys()
    for value in range(36):
        found = [index["by_id"].get_row_group_indexes(value) for index in (ours, theirs)]
        assert found[0] == found[1] != set()
    with_keys(meadow, {PETASTORM_INDEX_KEY: b"no pickle"})
    with petastore.make_reader(meadow, rowgroup_selector=SingleIndexSelector("by_id", [7])) as reader:
        assert 7 in {row.id for row in reader}


def test_migrate_reports_stale_indexes(meadow: Path) -> None:
    file = next(meadow.rglob("*.parquet"))
    shutil.copy(file, file.with_name("part-99999.parquet"))
    migrated = migrate(meadow)
    assert migrated.indexes == ()
    assert set(migrated.left) == {"by_id", "has_title"}
    assert "part-99999.parquet had 0 row groups" in migrated.left["by_id"]
    assert migrated.inventory.num_rows > 36


def test_migrate_reports_unreadable_indexes(meadow: Path) -> None:
    with_keys(meadow, {PETASTORM_INDEX_KEY: b"cos\nsystem\n."})
    migrated = migrate(meadow)
    assert "'os.system'" in migrated.left["all"]
    assert migrated.written == (COMMON_METADATA, MANIFEST)


def test_changed_files_raise_until_migrated_again(meadow: Path) -> None:
    migrate(meadow)
    file = next(meadow.rglob("*.parquet"))
    table = pq.ParquetFile(file).read()
    pq.write_table(table.slice(0, 1), file)
    with pytest.raises(DatasetChangedError), petastore.make_reader(meadow) as reader:
        list(reader)
    again = migrate(meadow)
    assert again.written == (MANIFEST,)
    assert "was rewritten" in again.left["by_id"]
    with petastore.make_reader(meadow) as reader:
        assert sum(1 for _ in reader) == 36 - table.num_rows + 1


def test_migrate_updates_a_schema_changed_by_petastorm(meadow: Path, copied: Callable[[str], Path]) -> None:
    migrate(meadow)
    pickled = keys(meadow)[PETASTORM_SCHEMA_KEY]
    with_keys(meadow, {PETASTORM_SCHEMA_KEY: pickled.replace(b"Meadow", b"Meadov")})
    assert migrate(meadow).written == (COMMON_METADATA, MANIFEST)
    assert petastore.open_dataset(meadow).schema.name == "Meadov"


def test_migrate_keeps_the_schema_of_an_exported_dataset(tmp_path: Path) -> None:
    schema = petastore.Unischema("price", [petastore.UnischemaField("price", "decimal")])
    petastore.write_dataset(tmp_path / "d", schema, [{"price": 1}])
    export(tmp_path / "d")
    assert migrate(tmp_path / "d").written == ()
    assert petastore.open_dataset(tmp_path / "d").schema == schema


def test_migrate_works_in_remote_storage(fixtures_root: Path) -> None:
    filesystem = fsspec.filesystem("memory")
    filesystem.put(f"{fixtures_root / DATASETS[0]}/", "/migrate/Meadow", recursive=True)
    try:
        migrated = migrate("memory://migrate/Meadow")
        assert migrated.written[-1] == MANIFEST
        assert migrate("memory://migrate/Meadow").written == ()
        dataset = petastore.open_dataset("memory://migrate/Meadow")
        assert dataset.writer == "petastore migrate"
        assert get_row_group_indexes(dataset).keys() == {"by_id", "has_title"}
    finally:
        filesystem.rm("/migrate", recursive=True)


@pytest.mark.parametrize("dry_run", [False, True])
def test_migrate_does_nothing_for_a_petastore_dataset(tmp_path: Path, dry_run: bool) -> None:
    schema = petastore.Unischema("one", [petastore.UnischemaField("id", "int64")])
    petastore.write_dataset(tmp_path / "ours", schema, [{"id": 1}])
    before = contents(tmp_path)
    migrated = migrate(tmp_path / "ours", dry_run=dry_run)
    assert (migrated.schema, migrated.inventory.num_rows) == (schema, 1)
    assert (migrated.written, migrated.indexes, migrated.left) == ((), (), {})
    assert contents(tmp_path) == before


def test_migrate_raises_for_plain_parquet(tmp_path: Path, meadow: Path) -> None:
    (tmp_path / "plain").mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "plain" / "x.parquet")
    before = contents(tmp_path)
    with pytest.raises(
        InvalidArgumentError, match=r"url must be a dataset that Petastorm wrote, got.*whose _common_metadata lacks"
    ):
        migrate(tmp_path / "plain")
    with pytest.raises(
        InvalidArgumentError, match="url must be a directory, which has Petastorm's metadata, got the file"
    ):
        migrate(next(meadow.rglob("*.parquet")))
    assert contents(tmp_path) == before


def test_migrate_raises_when_no_dataset_exists(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path, words in (
        ("nosuch", "there is nothing at that path"),
        ("empty", "must have at least one Parquet file, got an empty directory"),
    ):
        with pytest.raises(DatasetNotFoundError, match=words):
            migrate(tmp_path / path)
