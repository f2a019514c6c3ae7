"""Tests of building row group indexes: contents, one read per row group, stale indexes, errors."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore import Unischema, UnischemaField, open_dataset
from petastore.codecs import NdarrayCodec
from petastore.dataset import Dataset
from petastore.errors import DatasetChangedError, DecodeError, InvalidArgumentError, TransformError
from petastore.indexing import (
    FieldNotNullIndexer,
    RowGroupIndexerBase,
    SingleFieldIndexer,
    build_rowgroup_index,
    get_row_group_indexes,
)

SCHEMA = Unischema(
    "s",
    [
        UnischemaField("id", "int64"),
        UnischemaField("word", "str", nullable=True),
        UnischemaField("labels", "int64", (None,), NdarrayCodec()),
    ],
)


def row(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "word": None if 10 <= number < 20 else f"w{number % 3}",
        "labels": np.arange(number // 10, number // 10 + number % 2),
    }


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Write 40 rows in row groups of 5."""
    petastore.write_dataset(tmp_path / "s", SCHEMA, map(row, range(40)), rows_per_row_group=5)
    return str(tmp_path / "s")


class FirstDigits(RowGroupIndexerBase):
    """A user-defined indexer over rows."""

    def __init__(self) -> None:
        self.found: dict[str, set[int]] = {}

    def __add__(self, other: Any) -> Any:
        merged = type(self)()
        for part in (self, other):
            for digit, groups in part.found.items():
                merged.found.setdefault(digit, set()).update(groups)
        return merged

    @property
    def index_name(self) -> str:
        return "first digit"

    @property
    def column_names(self) -> list[str]:
        return ["id", "word"]

    @property
    def indexed_values(self) -> list[Any]:
        return list(self.found)

    def get_row_group_indexes(self, value_key: Any) -> set[int]:
        return self.found[value_key]

    def build_index(self, decoded_rows: list[dict[str, Any]], piece_index: int) -> Any:
        for values in decoded_rows:
            assert set(values) == {"id", "word"}
            self.found.setdefault(str(values["id"])[0], set()).add(piece_index)


def test_row_group_index_lists_row_groups_of_each_value(url: str) -> None:
    mine = FirstDigits()
    indexers = [
        SingleFieldIndexer("by_word", "word"),
        SingleFieldIndexer("by_label", "labels"),
        FieldNotNullIndexer("has_word", "word"),
        mine,
    ]
    build_rowgroup_index(url, object(), indexers, "libhdfs3", workers_count=2)
    found = get_row_group_indexes(open_dataset(url))
    assert list(found) == ["by_label", "by_word", "first digit", "has_word"]
    with_word = {0, 1, 4, 5, 6, 7}
    assert found["has_word"].get_row_group_indexes() == with_word
    assert found["by_word"].get_row_group_indexes("w1") == with_word
    assert sorted(found["by_word"].indexed_values) == ["w0", "w1", "w2"]
    assert {label: found["by_label"].get_row_group_indexes(label) for label in range(5)} == {
        0: {0, 1}, 1: {2, 3}, 2: {4, 5}, 3: {6, 7}, 4: set(),
    }  # fmt: skip
    assert found["first digit"].get_row_group_indexes("3") == {0, 6, 7}
    assert mine.found == {}
    assert indexers[0].indexed_values == []


def test_build_index_reads_only_the_indexed_fields(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, tuple[str, ...]]] = []
    read = Dataset.read

    def noted(self: Dataset, unit: Any) -> Any:
        seen.append((unit.group, unit.columns))
        return read(self, unit)

    monkeypatch.setattr(Dataset, "read", noted)
    build_rowgroup_index(url, indexers=[SingleFieldIndexer("a", "word"), FieldNotNullIndexer("b", "word")])
    assert sorted(seen) == [(group, ("word",)) for group in range(8)]


def test_build_index_works_with_partitions_and_plain_parquet(tmp_path: Path) -> None:
    for day, rows in (("mon", 3), ("tue", 0), ("wed", 2)):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(pa.table({"id": pa.array(range(rows), pa.int64())}), tmp_path / f"day={day}" / "a.parquet")
    build_rowgroup_index(str(tmp_path), indexers=[SingleFieldIndexer("by_day", "day"), SingleFieldIndexer("i", "id")])
    dataset = open_dataset(tmp_path)
    found = get_row_group_indexes(dataset)
    last = dataset.inventory.num_row_groups - 1
    assert found["by_day"].get_row_group_indexes("wed") == {last}
    assert found["by_day"].get_row_group_indexes("tue") == set()
    assert found["i"].get_row_group_indexes(1) == {0, last}
    assert found["i"].get_row_group_indexes(2) == {0}


def test_index_is_stale_after_the_data_changes(url: str) -> None:
    build_rowgroup_index(url, indexers=[SingleFieldIndexer("by_word", "word")])
    petastore.write_dataset(url, SCHEMA, map(row, range(40)), rows_per_row_group=5, mode="append")
    with pytest.raises(DatasetChangedError, match=r"'by_word' is stale: .* was added"):
        get_row_group_indexes(open_dataset(url))
    build_rowgroup_index(url, indexers=[SingleFieldIndexer("by_word", "word")])
    found = get_row_group_indexes(open_dataset(url))
    assert len(found["by_word"].get_row_group_indexes("w1")) == 12


@pytest.mark.parametrize(
    ("indexers", "message"),
    [
        ([], r"indexers must have at least one indexer, such as SingleFieldIndexer\('by_id', 'id'\), got none"),
        (SingleFieldIndexer("a", "id"), "indexers must be a list of indexers, got"),
        (7, "indexers must be a list of indexers, got"),
        (["id"], "indexers must be derived from RowGroupIndexerBase, got"),
        ([SingleFieldIndexer], "indexers must be derived from RowGroupIndexerBase, got"),
        (
            [SingleFieldIndexer("a", "id"), SingleFieldIndexer("a", "word")],
            "indexers must have distinct names, got 'a' twice",
        ),
        (
            [SingleFieldIndexer("a", "wrong")],
            r"indexers must use fields of.*\('id', 'word', 'labels'\), got 'wrong' in SingleFieldIndexer\('a',",
        ),
    ],
)
def test_unindexable_field_raises_before_reading(url: str, indexers: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        build_rowgroup_index(url, indexers=indexers)


def test_build_index_raises_for_single_files(url: str) -> None:
    path = str(next(Path(url).glob("*.parquet")))
    with pytest.raises(
        InvalidArgumentError,
        match="dataset_url must be a directory, because indexes belong to whole datasets, got single files",
    ):
        build_rowgroup_index(path, indexers=[SingleFieldIndexer("a", "id")])
    with pytest.raises(
        InvalidArgumentError,
        match=r"rowgroup_selector must be used with a whole dataset, got single files of.*Read the directory, or",
    ):
        get_row_group_indexes(open_dataset(path))


def test_failing_indexer_raises_and_stores_nothing(url: str) -> None:
    class Fails(FirstDigits):
        def build_index(self, decoded_rows: list[dict[str, Any]], piece_index: int) -> Any:
            raise KeyError(len(decoded_rows), piece_index)

    with pytest.raises(TransformError, match=r"the indexer Fails of the index 'first digit' raised KeyError"):
        build_rowgroup_index(url, indexers=[SingleFieldIndexer("a", "id"), Fails()], workers_count=1)

    class Stores(FirstDigits):
        @property
        def indexed_values(self) -> list[Any]:
            return [(1, 2)]

        def get_row_group_indexes(self, value_key: Any) -> set[int]:
            return {len(value_key)}

    with pytest.raises(
        InvalidArgumentError,
        match="values of the index 'first digit' must be numbers, text, bytes, decimals, dates or times, got",
    ):
        build_rowgroup_index(url, indexers=[SingleFieldIndexer("a", "id"), Stores()])
    assert get_row_group_indexes(open_dataset(url)) == {}


def test_build_index_raises_for_a_damaged_cell(tmp_path: Path) -> None:
    petastore.write_dataset(tmp_path / "s", SCHEMA, map(row, range(4)))
    (path,) = (tmp_path / "s").glob("*.parquet")
    table = pq.read_table(path)
    broken = table.set_column(2, table.schema.field("labels"), pa.array([b"x"] * 4, table.schema.field("labels").type))
    pq.write_table(broken, path)
    for folder in ((tmp_path / "s" / "_petastore"),):
        for file in folder.glob("*"):
            file.unlink()
    with pytest.raises(DecodeError, match=r"column 'labels', row 0 of row group 0 in part-"):
        build_rowgroup_index(str(tmp_path / "s"), indexers=[SingleFieldIndexer("a", "labels")])


def test_built_indexes_equal_petastorms(fixtures_root: Path, tmp_path: Path) -> None:
    shutil.copytree(fixtures_root / "petastorm-0.13.1" / "Meadow", tmp_path / "Meadow")
    dataset = open_dataset(tmp_path / "Meadow")
    theirs = get_row_group_indexes(dataset)
    indexers = [SingleFieldIndexer("by_id", "id"), FieldNotNullIndexer("has_title", "title")]
    build_rowgroup_index(str(tmp_path / "Meadow"), indexers=indexers)
    ours = get_row_group_indexes(dataset)
    assert ours.keys() == theirs.keys()
    for name, index in ours.items():
        assert sorted(index.indexed_values) == sorted(theirs[name].indexed_values)
        for value in index.indexed_values:
            assert index.get_row_group_indexes(value) == theirs[name].get_row_group_indexes(value)
