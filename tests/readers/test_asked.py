"""Tests of reader options: invalid values raise before the dataset is opened, and sizes accept units."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from petastore.codecs import ImageDecode
from petastore.errors import DatasetNotFoundError, InvalidArgumentError
from petastore.predicates import in_set
from petastore.readers.bad_rows import selected_rows
from petastore.readers.options import DatasetOptions, ReadOptions, RowOptions, RunOptions
from tests.readers.small import ROWS, written

DUMMY = RunOptions(reader_pool_type="dummy")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"cache_type": "local_disk"}, "cache_type must be one of .*'null', 'local-disk', got 'local_disk'"),
        (
            {"cache_type": "local-disk", "cache_size_limit": -1},
            "cache_size_limit must be at least 65,536",
        ),
        ({"cache_type": "local-disk", "cache_location": 7}, "cache_location must be a local directory, .*, got 7"),
    ],
    ids=str,
)
def test_invalid_cache_options_raise_before_the_dataset_is_opened(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        DatasetOptions("/nowhere", **asked)


def test_cache_options_are_ignored_without_a_cache() -> None:
    assert not DatasetOptions("/nowhere", cache_type=None, cache_size_limit=-1).caches


@pytest.mark.parametrize("name", ["memory_budget", "max_cell_bytes", "shuffle_buffer_bytes", "cache_size_limit"])
def test_options_in_bytes_accept_text_with_units(name: str) -> None:
    def given(value: Any) -> ReadOptions:
        return ReadOptions.of("/nowhere", cache_type="local-disk", **{name: value})

    assert given("1 GiB") == dataclasses.replace(given("1 GiB"))
    for wrong in ("2 gigs", "-1", "", True, 1.5, 0):
        with pytest.raises(InvalidArgumentError, match=f"^{name} must be "):
            given(wrong)


def test_memory_budget_and_max_cell_bytes_accept_text_with_units() -> None:
    workers = ReadOptions.of("/nowhere", memory_budget="1.5 GB", max_cell_bytes="16 MiB").run.workers
    assert (workers.memory_budget, workers.max_cell_bytes) == (1_500_000_000, 2**24)


def test_dataset_options_open_a_url_or_use_an_open_dataset(tmp_path: Path) -> None:
    dataset = written(tmp_path / "data")
    opened = DatasetOptions(str(tmp_path / "data")).opened()
    assert opened.inventory.fingerprint == dataset.inventory.fingerprint
    assert DatasetOptions(dataset).opened().kept is dataset.kept
    with pytest.raises(DatasetNotFoundError, match="nowhere"):
        DatasetOptions(str(tmp_path / "nowhere")).opened()


def test_decode_option_for_unknown_fields_raises(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="picture"):
        DatasetOptions(written(tmp_path), decode={"picture": ImageDecode(mode="gray")}).opened()


def test_row_options_without_filters_select_all_rows(tmp_path: Path) -> None:
    assert RowOptions().is_for_all
    assert selected_rows(written(tmp_path), ["id"], RowOptions(), DUMMY) is None


@pytest.mark.parametrize(
    "asked", [{"filters": [("id", "<", 4)]}, {"predicate": in_set([0, 1, 2, 3], "id")}], ids=["filters", "predicate"]
)
def test_filter_options_select_the_matching_rows(tmp_path: Path, asked: dict[str, Any]) -> None:
    rows = RowOptions(**asked, filter_cache=False)
    assert not rows.is_for_all
    selection = selected_rows(written(tmp_path), ["id"], rows, DUMMY)
    assert selection is not None
    assert selection.counts.tolist() == [4, *[0] * (-(-ROWS // 5) - 1)]


def test_invalid_filter_cache_location_raises() -> None:
    with pytest.raises(InvalidArgumentError, match="filter_cache"):
        RowOptions(filter_cache=7)  # type: ignore[arg-type]
