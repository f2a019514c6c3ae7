"""Tests of mixture sources: accepted arguments, options inherited from the mixture or overridden, common columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import petastore
from petastore import Unischema, UnischemaField
from petastore.dataset import Dataset
from petastore.errors import DatasetNotFoundError, InvalidArgumentError, SchemaError
from petastore.plan.mixture.mixture import Mixture
from petastore.plan.request import OrderOptions, PlanOptions
from petastore.readers.mixed_sources import open_sources, plan_mixture
from petastore.readers.options import DatasetOptions, RowOptions, RunOptions
from tests.readers.small import ROWS, SCHEMA, written

ALL = DatasetOptions("file:///of no meaning", storage_timeout=7.0)


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = Path(tmp_path_factory.mktemp("sources"))
    return [written(folder / name).url for name in ("one", "other")]


def mixture_of(sources: tuple[list[Dataset], list[RowOptions]], weights: list[Any], **asked: Any) -> Mixture:
    return plan_mixture(
        *sources,
        weights,
        PlanOptions(**asked),
        RunOptions(reader_pool_type="dummy"),
        stop="first_exhausted",
        batching="mixed",
    )


@pytest.mark.parametrize("given", ["file:///data", b"x", {"dataset_url": "x"}, [], 7, {"a"}], ids=repr)
def test_argument_that_is_not_a_list_of_datasets_raises(given: Any) -> None:
    expected = rf"sources must be a list of datasets, such as \[url, url\], got {type(given).__name__}"
    with pytest.raises(InvalidArgumentError, match=expected):
        open_sources(given, ALL, RowOptions())


@pytest.mark.parametrize("source", [{"filters": None}, {"dataset_url": "x", "seed": 3}], ids=str)
def test_dict_with_unknown_source_keys_raises_and_lists_the_valid_ones(source: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="must have 'dataset_url', and may have 'storage_options'"):
        open_sources([source], ALL, RowOptions())


def test_missing_dataset_of_a_mixture_is_named(urls: list[str]) -> None:
    with pytest.raises(DatasetNotFoundError, match="nowhere"):
        open_sources([urls[0], f"{urls[0]}/nowhere"], ALL, RowOptions())


def test_mixture_source_inherits_the_options_of_the_mixture(urls: list[str]) -> None:
    few = [("id", "<", 3)]
    datasets, of_rows = open_sources(
        [urls[0], {"dataset_url": urls[1], "filters": None, "storage_timeout": 9.0}], ALL, RowOptions(filters=few)
    )
    assert [rows.filters for rows in of_rows] == [few, None]
    assert [dataset.location.timeout_s for dataset in datasets] == [7.0, 9.0]


def test_mixture_sources_inherit_or_override_filters(urls: list[str]) -> None:
    rows = RowOptions(filters=[("id", "<", 3)], filter_cache=False)
    sources = open_sources([urls[0], {"dataset_url": urls[1], "filters": None}], ALL, rows)
    assert [plan.num_rows for plan in mixture_of(sources, [1, 1]).sources] == [3, ROWS]


def test_mixture_sources_have_own_seeds_and_shuffle_buffers_by_weight(urls: list[str]) -> None:
    order = OrderOptions(seed=5, shuffle_rows=True, shuffle_buffer_bytes=4000)
    mixture = mixture_of(open_sources([urls[0]] * 2, ALL, RowOptions()), [3, 1], order=order)
    orders = [plan.request.order for plan in mixture.sources]
    assert orders[0].seed != orders[1].seed
    assert mixture.seed == 5
    assert orders[0].lanes >= orders[1].lanes
    again = mixture_of(open_sources([urls[0]] * 2, ALL, RowOptions()), [3, 1], order=order)
    assert again.fingerprint == mixture.fingerprint


@pytest.mark.parametrize("seed", [None, 5])
def test_mixture_seed_counts_as_default_only_if_it_is_none(urls: list[str], seed: int | None) -> None:
    mixture = mixture_of(open_sources(urls, ALL, RowOptions()), [1, 1], order=OrderOptions(seed=seed))
    assert ("seed" in mixture.chosen) == (seed is None)
    assert all(("seed" in plan.request.chosen) == (seed is None) for plan in mixture.sources)


def test_different_numbers_of_weights_and_sources_raise(urls: list[str]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"weights must be one number per source \(2\), got 3"):
        mixture_of(open_sources(urls, ALL, RowOptions()), [1, 1, 1])


def test_mixture_reads_the_columns_common_to_all_datasets(urls: list[str], tmp_path: Path) -> None:
    petastore.write_dataset(str(tmp_path), Unischema("s", [UnischemaField("id", np.str_)]), [{"id": "1"}])
    sources = open_sources([urls[0], str(tmp_path)], ALL, RowOptions())
    with pytest.raises(SchemaError, match="id"):
        mixture_of(sources, [1, 1], columns=["id"])
    alike = mixture_of(open_sources(urls, ALL, RowOptions()), [1, 1], columns=["word", "x"])
    assert set(alike.request.columns) == {"word", "x"}
    assert set(mixture_of(open_sources(urls, ALL, RowOptions()), [1, 1]).request.columns) == set(SCHEMA.fields)
