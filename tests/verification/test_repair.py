"""Tests of `petastore repair`: it restores lost metadata, and writes nothing if a data file is damaged."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore.errors import DatasetChangedError, InvalidArgumentError, MetadataError, PetastoreError, SchemaError
from petastore.interop.migration import migrate
from petastore.storage.metadata import manifest as manifest_module
from petastore.verification.repair import repair
from petastore.writers.generate import generate_metadata
from tests.cli.command import petastore as command
from tests.verification.damage import dataset, flip

COMMON, MANIFEST = "_common_metadata", "_petastore/inventory.arrow"


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repair") / "frames"
    dataset(folder)
    return folder


@pytest.fixture
def frames(intact: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(intact, tmp_path / "frames"))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def rows(folder: Path) -> list[Any]:
    dataset = petastore.open_dataset(folder)
    return [dataset.schema, dataset.inventory, [row.id for row in dataset.head(100)]]


def _flip_manifest(folder: Path) -> None:
    flip(folder / MANIFEST, 700)


def _remove_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()


def _flip_common(folder: Path) -> None:
    flip(folder / COMMON, -20 + (folder / COMMON).stat().st_size)


def _remove_common(folder: Path) -> None:
    (folder / COMMON).unlink()


@pytest.mark.parametrize(
    ("damage", "written"),
    [
        (_flip_manifest, [MANIFEST]),
        (_remove_manifest, [MANIFEST]),
        (_flip_common, [COMMON, MANIFEST]),
        (_remove_common, [COMMON, MANIFEST]),
    ],
)
def test_repair_restores_metadata(
    intact: Path, frames: Path, damage: Callable[[Path], None], written: list[str]
) -> None:
    damage(frames)
    before = contents(frames)
    planned = repair(frames, dry_run=True)
    assert (planned.written, planned.left, planned.dry_run) == (tuple(written), {}, True)
    assert contents(frames) == before
    assert repair(frames).written == tuple(written)
    assert petastore.verify(frames).is_clean
    assert rows(frames) == rows(intact)
    changed = {name for name, data in contents(frames).items() if before.get(name) != data}
    assert changed <= {*written, COMMON}
    assert repair(frames).written == ()


def _remove(files: list[Path]) -> None:
    files[0].unlink()


def _truncate(files: list[Path]) -> None:
    files[0].write_bytes(files[0].read_bytes()[:-5])


def _rewrite(files: list[Path]) -> None:
    pq.write_table(pq.read_table(files[0]), files[0])


@pytest.mark.parametrize(
    ("damage", "error"), [(_remove, DatasetChangedError), (_truncate, MetadataError), (_rewrite, DatasetChangedError)]
)
def test_repair_writes_nothing_if_a_data_file_is_damaged(
    frames: Path, damage: Callable[[list[Path]], None], error: type[PetastoreError]
) -> None:
    files = sorted(frames.glob("*.parquet"))
    damage(files)
    _remove_common(frames)
    before = contents(frames)
    with pytest.raises(
        error,
        match=f"must be intact .*, got 1 damaged, missing or changed files.*{files[0].name}.*generate-metadata",
    ):
        repair(frames)
    assert contents(frames) == before


def test_repair_keeps_the_files_of_a_readable_manifest(frames: Path) -> None:
    stranger = frames / "stranger.parquet"
    shutil.copy(next(frames.glob("part*")), stranger)
    _remove_common(frames)
    found = repair(frames)
    assert "generate-metadata" in found.left["stranger.parquet"]
    with pytest.warns(UserWarning, match="stranger"):
        assert petastore.open_dataset(frames).inventory.num_rows == 30


def test_repair_reports_a_damaged_index(frames: Path) -> None:
    flip(frames / "_petastore" / "indexes" / "by_word.arrow", 300)
    found = repair(frames)
    assert found.written == ()
    assert "build_rowgroup_index" in found.left["index 'by_word'"]


def test_repair_does_not_change_plain_parquet(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "0.parquet")
    assert repair(tmp_path).written == ()
    with pytest.raises(InvalidArgumentError, match="dataset_url must be a directory"):
        repair(tmp_path / "0.parquet")
    generate_metadata(tmp_path)
    flip(tmp_path / MANIFEST, 500)
    assert repair(tmp_path).written == (MANIFEST,)
    assert petastore.open_dataset(tmp_path).inventory.num_rows == 2


def test_repair_rejects_a_dataset_without_any_schema_document(tmp_path: Path) -> None:
    dataset(tmp_path / "frames")
    for path in (tmp_path / "frames").glob("*.parquet"):
        table = pq.read_table(path)
        pq.write_table(table.replace_schema_metadata(), path)
    _remove_manifest(tmp_path / "frames")
    _flip_common(tmp_path / "frames")
    with pytest.raises(MetadataError, match="no schema document is left"):
        repair(tmp_path / "frames")


def _appended(folder: Path, *fields: petastore.UnischemaField) -> Path:
    """Append a row with each of these fields to a dataset with the field `id`."""
    schema = petastore.Unischema("user", [petastore.UnischemaField("id", "int64")])
    petastore.write_dataset(folder, schema, [{"id": 0}])
    for number, field in enumerate(fields, 1):
        row = {"id": number, field.name: "b"}
        petastore.write_dataset(folder, petastore.Unischema("user", [*schema, field]), [row], mode="append")
    return folder


def test_schema_in_several_files_has_the_fields_of_all(tmp_path: Path) -> None:
    name, city = (petastore.UnischemaField(field, "str", nullable=True) for field in ("name", "city"))
    folder = _appended(tmp_path / "users", name, city)
    before = contents(folder)
    expected = petastore.open_dataset(folder)
    for path in (MANIFEST, COMMON):
        (folder / path).unlink()
    assert petastore.open_dataset(folder).schema == expected.schema
    assert petastore.open_dataset(folder).to_arrow() == expected.to_arrow()
    assert petastore.verify(folder).is_clean
    assert repair(folder, dry_run=True).written == (MANIFEST,)
    assert repair(folder).written == (MANIFEST,)
    assert contents(folder)[COMMON] == before[COMMON]
    for path in (MANIFEST, COMMON):
        (folder / path).unlink()
    generate_metadata(folder)
    assert petastore.open_dataset(folder).schema == expected.schema


def test_files_whose_schemas_contradict_are_read_with_the_first_schema(tmp_path: Path) -> None:
    for number, dtype in enumerate(["int64", "int32"]):
        schema = petastore.Unischema("user", [petastore.UnischemaField("id", dtype)])
        petastore.write_dataset(tmp_path / dtype, schema, [{"id": number}])
        (tmp_path / "all").mkdir(exist_ok=True)
        shutil.copy(next((tmp_path / dtype).glob("*.parquet")), tmp_path / "all" / f"{number}.parquet")
    found = petastore.open_dataset(tmp_path / "all")
    assert found.schema["id"].dtype == "int64"
    assert found.to_arrow()["id"].to_pylist() == [0, 1]


def test_field_that_only_a_later_file_declares_is_nullable(tmp_path: Path) -> None:
    fields = [petastore.UnischemaField(name, "int64") for name in ("id", "x")]
    for number in (1, 2):
        schema = petastore.Unischema("user", fields[:number])
        petastore.write_dataset(tmp_path / f"{number}", schema, [dict.fromkeys(schema.fields, number)])
    found = petastore.open_dataset([tmp_path / "1", tmp_path / "2"])
    assert found.to_arrow().to_pylist() == [{"id": 1, "x": None}, {"id": 2, "x": 2}]


def test_repair_dry_run_checks_the_files_against_the_schema(frames: Path) -> None:
    _remove_manifest(frames)
    pq.write_table(pa.table({"other": [1]}), frames / "z.parquet")
    for dry_run in (True, False):
        with pytest.raises(SchemaError, match=r"^z\.parquet must have only columns of schema"):
            repair(frames, dry_run=dry_run)
    assert not (frames / MANIFEST).exists()


def test_repair_keeps_petastorms_keys(tmp_path: Path, fixtures_root: Path) -> None:
    assert petastore.verify(fixtures_root / "petastorm-0.13.1" / "Meadow").is_clean
    folder = Path(shutil.copytree(fixtures_root / "petastorm-0.13.1" / "Meadow", tmp_path / "meadow"))
    assert repair(folder).written == ()
    migrate(str(folder))
    keys = set(pq.read_metadata(folder / COMMON).metadata)
    _remove_manifest(folder)
    assert repair(folder).written == (MANIFEST,)
    assert set(pq.read_metadata(folder / COMMON).metadata) == keys
    assert petastore.verify(folder).is_clean


def test_newer_manifest_version_is_not_reported_as_damaged_or_repaired(
    frames: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest_module, "MANIFEST_VERSION", 0)
    for action in (petastore.verify, repair, generate_metadata):
        with pytest.raises(MetadataError, match="has version 1, but this release of petastore reads only up to 0"):
            action(frames)


def test_generate_metadata_replaces_a_damaged_manifest(frames: Path) -> None:
    _flip_manifest(frames)
    assert generate_metadata(frames).num_rows == 30
    assert petastore.verify(frames).is_clean


def test_repair_command_prints_what_it_wrote(frames: Path) -> None:
    _remove_common(frames)
    ran = command("repair", frames, "--dry-run")
    lines = [f"would write {COMMON}", f"would write {MANIFEST}", f"{frames.as_uri()}: dry run, nothing was written"]
    assert (ran.exit_code, ran.stdout.splitlines(), ran.stderr) == (0, lines, "")
    ran = command("repair", frames)
    lines = [f"wrote {COMMON}", f"wrote {MANIFEST}", f"{frames.as_uri()}: metadata repaired"]
    assert (ran.exit_code, ran.stdout.splitlines()) == (0, lines)
    ran = command("repair", frames)
    assert (ran.exit_code, ran.stdout) == (0, f"{frames.as_uri()}: nothing to repair\n")
    next(frames.glob("*.parquet")).unlink()
    ran = command("repair", frames)
    assert (ran.exit_code, ran.stdout, len(ran.stderr.splitlines())) == (2, "", 1)
