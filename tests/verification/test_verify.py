"""Tests of `petastore.verify`: it reports each kind of damage, and reports nothing for intact datasets."""

from __future__ import annotations

import dataclasses
import shutil
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore.codecs import NdarrayCodec
from petastore.errors import DatasetNotFoundError, InvalidArgumentError
from petastore.inventory import Inventory
from petastore.storage.files.location import open_location
from petastore.storage.footers.footers import encoded_footers, read_footers
from petastore.storage.metadata.manifest import read_manifest, write_manifest
from petastore.verification.report import Problem
from petastore.writers.generate import generate_metadata
from tests.verification.damage import dataset, edit_footer, flip, plain


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("verify") / "frames"
    dataset(folder)
    return folder


@pytest.fixture
def frames(intact: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(intact, tmp_path / "frames"))


def test_verify_reads_every_cell_of_an_intact_dataset(intact: Path) -> None:
    seen: list[tuple[int, int]] = []
    report = petastore.verify(intact, progress=lambda *counts: seen.append(counts))
    assert report.problems == ()
    assert report.is_clean
    assert (report.files, report.row_groups, report.row_groups_total) == (3, 6, 6)
    assert (report.rows, report.cells, report.unsupported) == (30, 120, {})
    assert seen == [(done, 6) for done in range(1, 7)]


def test_verify_reads_some_columns_and_a_sample_of_row_groups(intact: Path) -> None:
    report = petastore.verify(intact, columns=["id", "p.*"], sample=2, workers_count=1)
    assert (report.row_groups, report.row_groups_total, report.rows, report.cells) == (2, 6, 10, 30)


def _remove(files: list[Path]) -> None:
    files[1].unlink()


def _add(files: list[Path]) -> None:
    shutil.copy(files[1], files[1].with_name("stranger.parquet"))


def _rewrite(files: list[Path]) -> None:
    pq.write_table(pq.read_table(files[1]), files[1], compression="gzip")


def _truncate(files: list[Path]) -> None:
    files[1].write_bytes(files[1].read_bytes()[:-20])


def _damage_footer(files: list[Path]) -> None:
    flip(files[1], files[1].stat().st_size - 40)


def _damage_manifest(files: list[Path]) -> None:
    flip(files[1].parent / "_petastore" / "inventory.arrow", 1000)


def _miscount(files: list[Path]) -> None:
    location = open_location(files[1].parent)
    manifest = read_manifest(location)
    assert manifest is not None
    rows = manifest.inventory.rows.copy()
    rows[2] += 1
    inventory = dataclasses.replace(manifest.inventory, rows=rows)
    assert isinstance(inventory, Inventory)
    write_manifest(location, dataclasses.replace(manifest, inventory=inventory))


def _damage_page(files: list[Path]) -> None:
    chunk = pq.read_metadata(files[1]).row_group(1).column(2)
    flip(files[1], chunk.data_page_offset + chunk.total_compressed_size - 5)


def _damage_common_metadata(files: list[Path]) -> None:
    common = files[1].with_name("_common_metadata")
    common.write_bytes(common.read_bytes()[:-9])


def _remove_common_metadata(files: list[Path]) -> None:
    files[1].with_name("_common_metadata").unlink()


def _damage_index(files: list[Path]) -> None:
    flip(files[1].parent / "_petastore" / "indexes" / "by_word.arrow", 300)


Damage = Callable[[list[Path]], None]


@pytest.mark.parametrize(
    ("damage", "kind", "place"),
    [
        (_remove, "missing_file", ("part", None, None)),
        (_add, "unlisted_file", ("stranger.parquet", None, None)),
        (_rewrite, "changed_file", ("part", None, None)),
        (_truncate, "footer", ("part", None, None)),
        (_damage_manifest, "manifest", ("_petastore/inventory.arrow", None, None)),
        (_miscount, "row_count", ("part", None, None)),
        (_damage_page, "page", ("part", 1, "pose")),
        (_damage_common_metadata, "schema", ("_common_metadata", None, None)),
        (_remove_common_metadata, "schema", ("_common_metadata", None, None)),
        (_damage_index, "index", (None, None, None)),
    ],
)
def test_verify_reports_kind_file_row_group_and_column_of_damage(
    frames: Path, damage: Damage, kind: str, place: tuple[str | None, ...]
) -> None:
    files = sorted(frames.glob("*.parquet"))
    damage(files)
    report = petastore.verify(frames)
    assert not report.is_clean
    problem = report.problems[0]
    file = files[1].name if place[0] == "part" else place[0]
    assert (problem.kind, problem.file, problem.row_group, problem.column) == (kind, file, *place[1:])
    assert [one.kind for one in report.problems if one.kind not in (kind, "index")] == []
    assert report.rows == (20 if kind in ("missing_file", "footer") else 30)


def test_verify_names_a_footer_with_a_flipped_byte(frames: Path) -> None:
    files = sorted(frames.glob("*.parquet"))
    _damage_footer(files)
    (problem,) = (one for one in petastore.verify(frames).problems if one.kind != "index")
    assert problem.kind in ("footer", "changed_file")
    assert problem.file == files[1].name


def test_verify_counts_the_cells_that_cannot_be_decoded(tmp_path: Path) -> None:
    field = petastore.UnischemaField("pose", "float32", (2,), NdarrayCodec(), nullable=True)
    cells = NdarrayCodec().encode_column([np.zeros(2, "f4")] * 6, field).to_pylist()
    cells[2], cells[4], cells[3] = b"garbage", cells[0][:-1], None
    pq.write_table(pa.table({"pose": pa.array(cells, pa.binary())}), tmp_path / "0.parquet", row_group_size=6)
    generate_metadata(tmp_path, petastore.Unischema("poses", [field]))
    (problem,) = petastore.verify(tmp_path).problems
    assert (problem.kind, problem.file, problem.row_group, problem.column) == ("cell", "0.parquet", 0, "pose")
    assert (problem.row, problem.count) == (2, 2)


def test_verify_compares_values_with_statistics(tmp_path: Path) -> None:
    path = plain(tmp_path / "bounds")
    edit_footer(path, lambda footer: footer.replace(struct.pack("<q", 1008), struct.pack("<q", 1007)))
    (problem,) = petastore.verify(path.parent).problems
    assert problem == Problem("bounds", problem.message, "0.parquet", 0, "id", 8)
    assert "1000 to 1007, got 1008" in problem.message

    path = plain(tmp_path / "text")
    edit_footer(path, lambda footer: footer.replace(b"\x01a", b"\x01b"))
    (problem,) = petastore.verify(path.parent).problems
    assert (problem.kind, problem.column) == ("bounds", "word")
    assert "got b'a'" in problem.message

    path = plain(tmp_path / "nulls")
    five, four = b"\x36\x0a", b"\x36\x08"  # the field null_count, zigzag-encoded
    edit_footer(path, lambda footer: footer.replace(five, four, 1))
    (problem,) = petastore.verify(path.parent).problems
    assert (problem.kind, problem.column) == ("null_count", "word")
    assert problem.message == "the footer states 4 nulls, but 5 were read"


def test_verify_finds_all_problems_at_once(frames: Path) -> None:
    files = sorted(frames.glob("*.parquet"))
    _remove(files)
    _damage_page([files[0], files[2]])
    flip(files[2], pq.read_metadata(files[2]).row_group(0).column(3).data_page_offset + 60)
    problems = petastore.verify(frames).problems
    assert [(one.kind, one.file, one.row_group, one.column) for one in problems] == [
        ("missing_file", files[1].name, None, None),
        ("page", files[2].name, 0, "photo"),
        ("page", files[2].name, 1, "pose"),
    ]


def test_verify_reports_a_schema_that_files_do_not_match(tmp_path: Path) -> None:
    generate_metadata(plain(tmp_path).parent, _schema("int64"))
    pq.write_table(pa.table({"id": ["text"], "word": ["a"]}), tmp_path / "0.parquet")
    report = petastore.verify(tmp_path)
    assert [one.kind for one in report.problems] == ["changed_file", "schema"]
    assert (report.files, report.rows) == (1, 0)


def _schema(dtype: str) -> petastore.Unischema:
    return petastore.Unischema(
        "rows",
        [
            petastore.UnischemaField("id", dtype, nullable=True),
            petastore.UnischemaField("word", "str", nullable=True),
        ],
    )


def test_verify_reports_damaged_packed_footers(frames: Path) -> None:
    location = open_location(frames)
    manifest = read_manifest(location)
    assert manifest is not None
    files = tuple(dataclasses.replace(file, etag='"1"') for file in manifest.inventory.files)  # as on an object store
    footers = encoded_footers(read_footers(location, [file.path for file in files]))
    inventory = dataclasses.replace(manifest.inventory, files=files)
    write_manifest(location, dataclasses.replace(manifest, inventory=inventory, footers=footers))
    assert petastore.verify(frames).is_clean
    flip(frames / "_petastore" / "footers", 50)
    (problem,) = petastore.verify(frames).problems
    assert (problem.kind, problem.file) == ("packed_footers", "_petastore/footers")
    assert problem.message == "3 of 3 footers are missing or damaged"


def test_verify_reads_large_row_groups_in_parts(tmp_path: Path) -> None:
    count = 200_000
    table = pa.table({"id": pa.array(range(count)), "word": pa.array(["a", None] * (count // 2))})
    pq.write_table(table, tmp_path / "0.parquet")
    report = petastore.verify(tmp_path)
    assert (report.problems, report.row_groups, report.cells) == ((), 1, 2 * count)
    edit_footer(
        tmp_path / "0.parquet", lambda footer: footer.replace(struct.pack("<q", count - 1), struct.pack("<q", 150_000))
    )
    (problem,) = petastore.verify(tmp_path).problems
    assert (problem.kind, problem.column, problem.row) == ("bounds", "id", 150_001)


def test_verify_rejects_invalid_arguments(intact: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="sample must be"):
        petastore.verify(intact, sample=0)
    with pytest.raises(InvalidArgumentError, match="workers_count must be"):
        petastore.verify(intact, workers_count=0)
    with pytest.raises(InvalidArgumentError, match="nope"):
        petastore.verify(intact, columns=["nope"])
    with pytest.raises(DatasetNotFoundError):
        petastore.verify(tmp_path / "nothing")


def test_verify_ends_its_threads_after_an_interrupt(intact: Path) -> None:
    def interrupt(*_: int) -> None:
        raise KeyboardInterrupt

    threads = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        petastore.verify(intact, progress=interrupt)
    assert threading.active_count() == threads


def test_verify_reads_object_stores(intact: Path) -> None:
    store = fsspec.filesystem("memory")
    store.put(str(intact), "/verify/frames", recursive=True)
    try:
        report = petastore.verify("memory://verify/frames", workers_count=2)
        assert (report.problems, report.row_groups, report.cells) == ((), 6, 120)
        path = sorted(store.glob("/verify/frames/*.parquet"))[2]
        data = bytearray(store.cat_file(path))
        chunk = pq.read_metadata(intact / Path(path).name).row_group(0).column(2)
        data[chunk.data_page_offset + chunk.total_compressed_size - 5] ^= 1
        store.pipe_file(path, bytes(data))
        (problem,) = petastore.verify("memory://verify/frames").problems
        assert (problem.kind, problem.file, problem.row_group, problem.column) == ("page", Path(path).name, 0, "pose")
        store.rm_file(path)
        (problem,) = petastore.verify("memory://verify/frames").problems
        assert (problem.kind, problem.file) == ("missing_file", Path(path).name)
    finally:
        store.rm("/verify", recursive=True)
