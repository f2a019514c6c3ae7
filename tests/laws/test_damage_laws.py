"""Tests of damaged files: bit flips, truncation and noise in data and metadata raise an error or change no rows."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore import NGram, Unischema, UnischemaField, col
from petastore.codecs import CompressedImageCodec, CompressedNdarrayCodec, NdarrayCodec
from petastore.errors import MetadataError
from petastore.indexing import SingleFieldIndexer, build_rowgroup_index
from petastore.predicates import in_lambda
from petastore.readers.random_access import RandomAccess
from petastore.selectors import SingleIndexSelector
from petastore.storage.metadata.manifest import COMMON_METADATA, MANIFEST
from petastore.storage.row_groups import open_files, small_files
from petastore.storage.row_groups.open_files import SETTLED_NS
from petastore.writers.generate import generate_metadata
from tests.laws.damage_laws import (
    Damage,
    Outcome,
    check_damage,
    check_damage_in_any_epoch,
    cuts,
    files_of,
    flips,
    noise,
)
from tests.tier import sized

SCHEMA = Unischema(
    "everything",
    [
        UnischemaField("id", "int64"),
        UnischemaField("weight", "float32", (), None, nullable=True),
        UnischemaField("word", np.str_, (), None, nullable=True),
        UnischemaField("array", "int16", (2, 3), NdarrayCodec()),
        UnischemaField("packed", "float64", (None,), CompressedNdarrayCodec()),
        UnischemaField("picture", "uint8", (4, 4, 3), CompressedImageCodec("png")),
    ],
)


def rows(count: int) -> list[dict[str, Any]]:
    random = np.random.RandomState(7)
    return [
        {
            "id": number,
            "weight": None if number % 5 == 0 else np.float32(random.rand()),
            "word": None if number % 7 == 0 else f"word {number % 4}",
            "array": random.randint(-99, 99, (2, 3)).astype(np.int16),
            "packed": random.rand(number % 4),
            "picture": random.randint(256, size=(4, 4, 3)).astype(np.uint8),
        }
        for number in range(count)
    ]


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """Write a petastore dataset of 24 rows in 6 row groups of 3 files."""
    folder = tmp_path / "ours"
    petastore.write_dataset(folder, SCHEMA, rows(24), rows_per_row_group=4, rows_per_file=8)
    return folder


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """Write plain Parquet with checksums: nulls, dictionaries, lists, timestamps, and both page versions."""
    folder = tmp_path / "plain"
    folder.mkdir()
    count = 30
    table = pa.table(
        {
            "id": pa.array(range(count), pa.int32()),
            "maybe": pa.array([None if n % 3 == 0 else n * 1.5 for n in range(count)]),
            "word": pa.array([None if n % 4 == 0 else f"w{n % 3}" for n in range(count)]),
            "list": pa.array([list(range(n % 4)) for n in range(count)], pa.list_(pa.int64())),
            "flag": pa.array([n % 2 == 0 for n in range(count)]),
            "when": pa.array(
                [dt.datetime(2026, 1, 1 + n, tzinfo=dt.UTC) for n in range(count)], pa.timestamp("us", "UTC")
            ),
        }
    )
    kinds: list[dict[str, Any]] = [
        {"compression": "none"},
        {"compression": "zstd", "data_page_version": "2.0"},
        {"use_dictionary": False},
    ]
    for number, options in enumerate(kinds):
        part = table.slice(10 * number, 10)
        pq.write_table(part, folder / f"{number}.parquet", row_group_size=5, write_page_checksum=True, **options)
    generate_metadata(str(folder))
    return folder


class Settled:
    """Waits until the last change of a file is older than SETTLED_NS, after which checksums count as verified."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __call__(self) -> None:
        changed_ns = max(path.stat().st_ctime_ns for path in self._root.rglob("*"))
        while (left_ns := changed_ns + SETTLED_NS - time.time_ns()) >= 0:
            time.sleep((left_ns + 1) / 1e9)


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Settled:
    """Treat all files as large: their checksums are not verified again in later epochs."""
    monkeypatch.setattr(small_files, "SMALL_FILE_BYTES", 0)
    return Settled(tmp_path)


def reads(folder: Path, make: Callable[..., Any] = petastore.make_batch_reader, **options: Any) -> Callable[[], Any]:
    def read() -> Any:
        with make(str(folder), seed=3, filter_cache=False, **options) as reader:
            return len(reader), [row._asdict() for row in reader]

    return read


HOW: dict[str, dict[str, Any]] = {
    "rows, dummy": {"make": petastore.make_reader, "reader_pool_type": "dummy"},
    "rows, threads, shuffled": {"make": petastore.make_reader, "workers_count": 2, "shuffle_rows": True},
    "batches, dummy, in order": {"reader_pool_type": "dummy", "shuffle_row_groups": False},
    "batches, threads": {"workers_count": 2},
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("whose", ["ours", "plain"])
def test_bit_flips_in_data_raise_or_are_harmless(request: pytest.FixtureRequest, whose: str, how: str) -> None:
    folder = request.getfixturevalue(whose)
    count = sized(full=24, quick=8)
    outcome = check_damage(flips(files_of(folder), count, seed=len(how)), reads(folder, **HOW[how]))
    assert outcome.damages == count
    assert outcome.refused > count / 2


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("whose", ["ours", "plain"])
def test_bit_flips_in_data_raise_or_are_harmless_in_any_epoch(
    request: pytest.FixtureRequest, settled: Settled, whose: str, how: str
) -> None:
    count = sized(full=50, quick=8)
    folder = request.getfixturevalue(whose)
    options = dict(HOW[how])
    make = options.pop("make", petastore.make_batch_reader)
    outcome = check_damage_in_any_epoch(
        flips(files_of(folder), count, seed=len(how)),
        lambda: make(str(folder), seed=3, num_epochs=3, **options),
        settle=settled,
    )
    assert outcome.damages == count
    if options.get("reader_pool_type") == "dummy":  # threads may have read everything before the damage
        assert outcome.refused > 0.16 * count


def test_bit_flips_in_small_files_raise_or_are_harmless(plain: Path) -> None:
    assert all(path.stat().st_size <= small_files.SMALL_FILE_BYTES for path in files_of(plain))
    count = sized(full=60, quick=10)
    outcome = check_damage_in_any_epoch(
        flips(files_of(plain), count, seed=13),
        lambda: petastore.make_batch_reader(str(plain), seed=3, num_epochs=3, reader_pool_type="dummy"),
    )
    assert outcome.refused > count / 6


def test_verified_checksums_are_not_checked_again_in_later_epochs(
    ours: Path, settled: Settled, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    has = open_files.VerifiedRowGroups.has

    def noted(self: open_files.VerifiedRowGroups, *question: Any) -> bool:
        asked.append(has(self, *question))
        return asked[-1]

    monkeypatch.setattr(open_files.VerifiedRowGroups, "has", noted)
    outcome = check_damage_in_any_epoch(
        flips(files_of(ours), 10, seed=14),
        lambda: petastore.make_batch_reader(str(ours), seed=3, num_epochs=4, reader_pool_type="dummy"),
        settle=settled,
    )
    assert outcome.damages == 10
    assert asked.count(True) > asked.count(False) / 4


WAYS_TO_ASK: dict[str, dict[str, Any]] = {
    "a filter": {"filters": col("id") > 5},
    "a predicate": {"predicate": in_lambda(["id"], lambda number: number % 3 == 0)},
    "windows": {"make": petastore.make_reader, "schema_fields": NGram({0: ["id", "array"], 1: ["weight"]}, 1, "id")},
}


@pytest.mark.parametrize("asked", WAYS_TO_ASK)
def test_bit_flips_are_found_for_any_column_selection(ours: Path, settled: Settled, asked: str) -> None:
    count = sized(full=60, quick=10)
    options = dict(WAYS_TO_ASK[asked])
    make = options.pop("make", petastore.make_batch_reader if asked == "a filter" else petastore.make_reader)

    def open_reader() -> Any:
        return make(str(ours), seed=3, num_epochs=2, reader_pool_type="dummy", filter_cache=False, **options)

    outcome = check_damage_in_any_epoch(flips(files_of(ours), count, seed=4), open_reader, settle=settled)
    assert outcome.refused > count / 12


def test_bit_flips_are_found_in_mixtures(ours: Path, settled: Settled, tmp_path: Path) -> None:
    count = sized(full=60, quick=10)
    petastore.write_dataset(tmp_path / "other", SCHEMA, rows(10), rows_per_row_group=5)

    def open_reader() -> Any:
        return petastore.make_mixed_reader(
            [str(ours), str(tmp_path / "other")], [0.5, 0.5], seed=2, num_epochs=2, reader_pool_type="dummy"
        )

    outcome = check_damage_in_any_epoch(flips(files_of(tmp_path), count, seed=5), open_reader, settle=settled)
    assert outcome.refused > count / 12


def test_bit_flips_are_found_by_random_access(ours: Path) -> None:
    def read() -> Any:
        rows = RandomAccess(petastore.open_dataset(ours))
        return len(rows), rows.take(range(len(rows)))

    count = sized(full=100, quick=12)
    assert check_damage(flips(files_of(ours), count, seed=6), read).refused > count / 2


@pytest.mark.parametrize("kind", [flips, cuts, noise])
@pytest.mark.parametrize("how", HOW)
def test_damaged_manifests_raise_or_are_harmless(ours: Path, how: str, kind: Callable[..., Any]) -> None:
    count = sized(full=100, quick=15) if kind is flips else sized(full=15, quick=5)
    outcome = check_damage(kind([ours / MANIFEST], count, seed=len(how)), reads(ours, **HOW[how]))
    assert outcome.damages == count
    assert outcome.refused >= count - 2  # random bytes may equal the old ones


@pytest.mark.parametrize("kind", [cuts, noise])
def test_damaged_data_raises_or_is_harmless(plain: Path, kind: Callable[..., Any]) -> None:
    count = sized(full=60, quick=15)
    outcome = check_damage(kind(files_of(plain), count, seed=8), reads(plain, reader_pool_type="dummy"))
    assert outcome.refused > 0.8 * count


@pytest.mark.parametrize("kind", [flips, cuts, noise])
def test_damaged_metadata_of_other_tools_is_harmless(ours: Path, kind: Callable[..., Any]) -> None:
    count = sized(full=30, quick=10)
    outcome = check_damage(kind([ours / COMMON_METADATA], count, seed=9), reads(ours, reader_pool_type="dummy"))
    assert outcome.refused == 0  # readers use the manifest instead


def test_damaged_markers_of_unfinished_writes_are_harmless(ours: Path) -> None:
    marker = ours / "_petastore" / f"writing-{'0' * 32}"
    marker.write_bytes(b"somebody writes")
    assert check_damage(flips([marker], 10, seed=10), reads(ours, reader_pool_type="dummy")).refused == 0


def test_damaged_indexes_raise(ours: Path) -> None:
    build_rowgroup_index(str(ours), None, [SingleFieldIndexer("by_word", "word")])
    read = reads(ours, petastore.make_reader, rowgroup_selector=SingleIndexSelector("by_word", ["word 1"]))
    (index,) = files_of(ours, "_petastore/indexes/*.arrow")
    for kind, full in ((flips, 100), (cuts, 20), (noise, 20)):
        count = sized(full=full, quick=full // 4)
        assert check_damage(kind([index], count, seed=11), read).refused >= count - 2
    data = bytearray(index.read_bytes())
    data[len(data) // 2] ^= 4
    index.write_bytes(data)
    with pytest.raises(MetadataError, match=r"indexes/by_word\.arrow is damaged.*build_rowgroup_index"):
        read()


def test_damaged_cached_selections_are_recomputed(ours: Path, tmp_path: Path) -> None:
    remembered = tmp_path / "selections"

    def read() -> Any:
        with petastore.make_batch_reader(
            str(ours), filters=col("weight") > 0.5, filter_cache=remembered, reader_pool_type="dummy", seed=1
        ) as reader:
            return len(reader), [row._asdict() for row in reader]

    read()
    (selection,) = remembered.glob("*.selection")
    for kind, full in ((flips, 100), (cuts, 20), (noise, 20)):
        count = sized(full=full, quick=full // 4)
        # A damaged selection is computed and stored again, with the same content.
        assert check_damage(kind([selection], count, seed=12), read).refused == 0


def test_file_rewritten_with_the_same_size_and_other_values_raises(tmp_path: Path) -> None:
    folder, aside = tmp_path / "mine", tmp_path / "aside"
    for place, first in ((folder, 0), (aside, 100)):
        place.mkdir()
        table = pa.table({"id": pa.array(range(first, first + 40), pa.int64())})
        pq.write_table(table, place / "a.parquet", row_group_size=10, compression="none", use_dictionary=False)
    other = (aside / "a.parquet").read_bytes()
    assert len(other) == (folder / "a.parquet").stat().st_size
    ways = ("write", "touch back", "map", "replace")
    damages = [Damage(folder / "a.parquet", "other rows", other, way) for way in ways * 5]

    def open_reader() -> Any:
        return petastore.make_batch_reader(str(folder), seed=1, num_epochs=4, reader_pool_type="dummy")

    assert check_damage_in_any_epoch(damages, open_reader).refused > 5


def test_check_damage_reports_foreign_exceptions_and_silently_wrong_rows(tmp_path: Path) -> None:
    path = tmp_path / "number"
    path.write_bytes(b"12345678")

    def read() -> int:
        return int(path.read_bytes())

    with pytest.raises(AssertionError, match=r"of 40 damages are neither") as broken:
        check_damage(flips([path], 40, seed=1), read)
    assert "foreign exception ValueError" in str(broken.value)
    assert "other rows, silently" in str(broken.value)
    assert path.read_bytes() == b"12345678"


def test_check_damage_fails_when_a_read_hangs(tmp_path: Path) -> None:
    path, ended = tmp_path / "x", threading.Event()
    path.write_bytes(b"x")

    def read() -> bytes:
        if path.read_bytes() != b"x":
            ended.wait()
        return path.read_bytes()

    with pytest.raises(AssertionError, match="nothing came, and no error"):
        check_damage(flips([path], 1, seed=1), read, patience_s=0.05)
    ended.set()


def test_damage_outcome_check_fails_if_any_damage_gave_wrong_rows() -> None:
    Outcome(damages=3, refused=1).check()
    with pytest.raises(AssertionError, match="1 of 3 damages"):
        Outcome(damages=3, refused=1, broken=["x"]).check()
