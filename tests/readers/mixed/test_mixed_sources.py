"""What somebody wants to mix becomes a mixture: each source as it says itself, and else as is said for all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import petastore
from petastore import Unischema, UnischemaField
from petastore.errors import DatasetNotFoundError, InvalidArgumentError, SchemaError
from petastore.plan.mixture.mixture import Mixture
from petastore.plan.request import OrderAsk, PlanAsk
from petastore.readers.asked import DatasetAsk, RowsAsk
from petastore.readers.mixed.mixed_sources import MixedSource, open_sources, plan_mixture
from petastore.work.workers import Workers
from tests.readers.small import ROWS, SCHEMA, written

ALL = DatasetAsk("file:///of no meaning", storage_timeout=7.0)


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = Path(tmp_path_factory.mktemp("sources"))
    return [written(folder / name).url for name in ("one", "other")]


def mixture_of(sources: list[MixedSource], weights: list[Any], **asked: Any) -> Mixture:
    return plan_mixture(
        sources, weights, PlanAsk(**asked), stop="first_exhausted", batching="mixed", workers=Workers("dummy")
    )


@pytest.mark.parametrize("given", ["file:///data", b"x", {"dataset_url": "x"}, [], 7, {"a"}], ids=repr)
def test_what_is_no_list_of_datasets_is_refused(given: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"is no list of datasets to mix; give \[url, url"):
        open_sources(given, ALL, RowsAsk())


@pytest.mark.parametrize("source", [{"filters": None}, {"dataset_url": "x", "seed": 3}], ids=str)
def test_a_dict_that_is_no_source_is_refused_with_what_it_may_have(source: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="it needs 'dataset_url', and may have 'filters'"):
        open_sources([source], ALL, RowsAsk())


def test_a_source_that_is_not_there_is_named(urls: list[str]) -> None:
    with pytest.raises(DatasetNotFoundError, match="nowhere"):
        open_sources([urls[0], f"{urls[0]}/nowhere"], ALL, RowsAsk())


def test_what_a_source_does_not_say_is_as_for_all(urls: list[str]) -> None:
    few = [("id", "<", 3)]
    sources = open_sources(
        [urls[0], {"dataset_url": urls[1], "filters": None, "storage_timeout": 9.0}], ALL, RowsAsk(filters=few)
    )
    assert [source.rows.filters for source in sources] == [few, None]
    assert [source.dataset.location.timeout_s for source in sources] == [7.0, 9.0]


def test_rows_that_filters_leave_out_are_not_mixed(urls: list[str]) -> None:
    rows = RowsAsk(filters=[("id", "<", 3)], filter_cache=False)
    sources = open_sources([urls[0], {"dataset_url": urls[1], "filters": None}], ALL, rows)
    assert [plan.num_rows for plan in mixture_of(sources, [1, 1]).sources] == [3, ROWS]


def test_each_source_has_a_seed_of_its_own_and_memory_by_its_weight(urls: list[str]) -> None:
    order = OrderAsk(seed=5, shuffle_rows=True, shuffle_buffer_bytes=4000)
    mixture = mixture_of(open_sources([urls[0]] * 2, ALL, RowsAsk()), [3, 1], order=order)
    orders = [plan.request.order for plan in mixture.sources]
    assert orders[0].seed != orders[1].seed
    assert mixture.seed == 5
    assert orders[0].lanes >= orders[1].lanes
    again = mixture_of(open_sources([urls[0]] * 2, ALL, RowsAsk()), [3, 1], order=order)
    assert again.fingerprint == mixture.fingerprint


@pytest.mark.parametrize("seed", [None, 5])
def test_a_seed_that_nobody_asked_for_may_be_another_one_when_a_state_is_loaded(
    urls: list[str], seed: int | None
) -> None:
    mixture = mixture_of(open_sources(urls, ALL, RowsAsk()), [1, 1], order=OrderAsk(seed=seed))
    assert ("seed" in mixture.chosen) == (seed is None)
    assert all(("seed" in plan.request.chosen) == (seed is None) for plan in mixture.sources)


def test_other_numbers_of_weights_and_sources_are_refused(urls: list[str]) -> None:
    with pytest.raises(InvalidArgumentError, match="2 sources were given, but 3 weights"):
        mixture_of(open_sources(urls, ALL, RowsAsk()), [1, 1, 1])


def test_columns_are_those_that_all_datasets_have_alike(urls: list[str], tmp_path: Path) -> None:
    petastore.write_dataset(str(tmp_path), Unischema("s", [UnischemaField("id", np.int32)]), [{"id": 1}])
    sources = open_sources([urls[0], str(tmp_path)], ALL, RowsAsk())
    with pytest.raises(SchemaError, match="id"):
        mixture_of(sources, [1, 1], columns=["id"])
    alike = mixture_of(open_sources(urls, ALL, RowsAsk()), [1, 1], columns=["word", "x"])
    assert set(alike.request.columns) == {"word", "x"}
    assert set(mixture_of(open_sources(urls, ALL, RowsAsk()), [1, 1]).request.columns) == set(SCHEMA.fields)
