"""Tests of finding row group indexes by name: petastore's first, then Petastorm's, each read only on use."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from petastore import open_dataset
from petastore.errors import InvalidArgumentError, MetadataError
from petastore.indexers import RowGroupIndex
from petastore.storage.metadata.row_group_index import INDEXES, find_indexes, write_indexes


@pytest.fixture
def meadow(fixtures_root: Path, tmp_path: Path) -> Path:
    shutil.copytree(fixtures_root / "petastorm-0.13.1" / "Meadow", tmp_path / "Meadow")
    return tmp_path / "Meadow"


def test_petastore_index_takes_precedence_over_petastorms(meadow: Path) -> None:
    dataset = open_dataset(meadow)
    mine = [RowGroupIndex("by_id", ("id",), [7], [[0]]), RowGroupIndex("mine", ("id",), [8], [[1]])]
    write_indexes(dataset.location, dataset.inventory, mine)
    found = find_indexes(dataset.location, dataset.inventory)
    assert sorted(found) == ["by_id", "has_title", "mine"]
    assert found["by_id"].indexed_values == [7]
    assert list(find_indexes(dataset.location, dataset.inventory, ["mine", "has_title", "mine"])) == [
        "mine",
        "has_title",
    ]


def test_damaged_index_raises_only_when_used(meadow: Path) -> None:
    dataset = open_dataset(meadow)
    write_indexes(dataset.location, dataset.inventory, [RowGroupIndex("mine", ("id",), [8], [[1]])])
    (meadow / INDEXES / "mine.arrow").write_bytes(b"damaged")
    assert list(find_indexes(dataset.location, dataset.inventory, ["by_id"])) == ["by_id"]
    with pytest.raises(MetadataError, match="is damaged"):
        find_indexes(dataset.location, dataset.inventory, ["mine"])


def test_unknown_index_raises_and_lists_existing_indexes(meadow: Path) -> None:
    dataset = open_dataset(meadow)
    with pytest.raises(
        InvalidArgumentError,
        match=r"rowgroup_selector must .* index of .*Meadow, which has 'by_id', 'has_title', got 'by_day'",
    ) as caught:
        find_indexes(dataset.location, dataset.inventory, ["by_id", "by_day"])
    assert isinstance(caught.value, ValueError)
