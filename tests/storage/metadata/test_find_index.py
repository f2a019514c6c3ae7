"""Indexes are found by name: petastore's first, then Petastorm's, and only those that are asked for are read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from petastore import open_dataset
from petastore.errors import InvalidArgumentError, MetadataError
from petastore.indexers import RowGroupIndex
from petastore.storage.metadata.find_index import find_indexes
from petastore.storage.metadata.row_group_index import INDEXES, write_indexes


@pytest.fixture
def meadow(fixtures_root: Path, tmp_path: Path) -> Path:
    shutil.copytree(fixtures_root / "petastorm-0.13.1" / "Meadow", tmp_path / "Meadow")
    return tmp_path / "Meadow"


def test_ours_stand_before_petastorms_of_the_same_name(meadow: Path) -> None:
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


def test_an_index_that_nobody_asks_for_may_be_damaged(meadow: Path) -> None:
    dataset = open_dataset(meadow)
    write_indexes(dataset.location, dataset.inventory, [RowGroupIndex("mine", ("id",), [8], [[1]])])
    (meadow / INDEXES / "mine.arrow").write_bytes(b"damaged")
    assert list(find_indexes(dataset.location, dataset.inventory, ["by_id"])) == ["by_id"]
    with pytest.raises(MetadataError, match="is damaged"):
        find_indexes(dataset.location, dataset.inventory, ["mine"])


def test_names_that_there_are_not_are_told_with_those_that_there_are(meadow: Path) -> None:
    dataset = open_dataset(meadow)
    with pytest.raises(
        InvalidArgumentError, match=r"no row-group index 'by_day': .*Meadow has 'by_id', 'has_title'"
    ) as caught:
        find_indexes(dataset.location, dataset.inventory, ["by_id", "by_day"])
    assert isinstance(caught.value, ValueError)
