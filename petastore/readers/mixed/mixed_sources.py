"""From what somebody wants to mix to a mixture: datasets opened, their rows selected, their plans made."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from petastore.dataset import Dataset
from petastore.errors import InvalidArgumentError
from petastore.plan.mixture.mixed_line import proportions
from petastore.plan.mixture.mixture import Batching, Mixture, Stop
from petastore.plan.order.mix import mix
from petastore.plan.plan import Plan
from petastore.plan.request import Fields, PlanAsk
from petastore.plan.selection import Selection
from petastore.readers.arguments import SourceArguments
from petastore.readers.asked import CacheAsk, DatasetAsk, RowsAsk, Urls
from petastore.readers.mixed.mixed_datasets import agreed_schema
from petastore.schema.unischema import Unischema
from petastore.work.workers import Workers

__all__ = ["MixedSource", "SourceGiven", "open_sources", "plan_mixture"]

SourceGiven: TypeAlias = Urls | Dataset | SourceArguments
"""What users give for a source of a mixture."""


@dataclasses.dataclass(frozen=True)
class MixedSource:
    """A dataset to be mixed, and which of its rows."""

    dataset: Dataset
    """Where its rows are."""

    rows: RowsAsk
    """Which of them."""


def open_sources(given: Sequence[SourceGiven], dataset: DatasetAsk, rows: RowsAsk) -> list[MixedSource]:
    """The datasets to be mixed.

    Args:
        given: For each source a URL, a `Dataset`, or a dict with `dataset_url` and what is different for it.
        dataset: How all others are reached; its URL is of no meaning.
        rows: Which rows of all others.

    Raises:
        InvalidArgumentError: `given` is no list, or a dict has an unknown key.
        DatasetNotFoundError: There is no dataset there.
    """
    if isinstance(given, (str, bytes, os.PathLike, Mapping)) or not isinstance(given, Sequence) or not given:
        raise InvalidArgumentError(f"a {type(given).__name__} is no list of datasets to mix; give [url, url, …]")
    asks = [_ask_of(source, dataset, rows) for source in given]
    return [MixedSource(own.opened(), own_rows) for own, own_rows in asks]


def _ask_of(given: SourceGiven, dataset: DatasetAsk, rows: RowsAsk) -> tuple[DatasetAsk, RowsAsk]:
    """What is asked of a source: what it says itself, and else what is said for all."""
    if not isinstance(given, Mapping):
        return dataclasses.replace(dataset, url=given), rows
    known = list(SourceArguments.__annotations__)
    if not set(given) <= set(known) or "dataset_url" not in given:
        raise InvalidArgumentError(
            f"a source has {', '.join(map(repr, given))}; it needs 'dataset_url', and may have "
            f"{', '.join(repr(name) for name in known if name != 'dataset_url')}"
        )
    return (
        DatasetAsk(
            given["dataset_url"],
            given.get("storage_options", dataset.storage_options),
            given.get("filesystem", dataset.filesystem),
            given.get("storage_timeout", dataset.storage_timeout),
            given.get("decode", dataset.decode),
            CacheAsk(
                given.get("cache_type", dataset.cache.cache_type),
                given.get("cache_location", dataset.cache.cache_location),
                given.get("cache_size_limit", dataset.cache.cache_size_limit),
            ),
            given.get("storage_hedging", dataset.storage_hedging),
        ),
        RowsAsk(
            given.get("filters", rows.filters),
            given.get("predicate", rows.predicate),
            given.get("rowgroup_selector", rows.rowgroup_selector),
            given.get("filter_cache", rows.filter_cache),
        ),
    )


def plan_mixture(
    sources: Sequence[MixedSource],
    weights: Sequence[Any],
    ask: PlanAsk,
    *,
    stop: Stop,
    batching: Batching,
    workers: Workers,
) -> Mixture:
    """The mixture of some sources. Each has a seed of its own, made of the one that was asked for.

    Args:
        sources: What is mixed.
        weights: Of the mixture.
        ask: What is asked of the mixture: its `shuffle_buffer_bytes` is that of all sources together, which share it by
            weight.
        stop: Of the mixture.
        batching: Of the mixture.
        workers: Who looks for the rows that filters keep.

    Raises:
        InvalidArgumentError: Something that was asked for cannot be.
        SchemaError: Two datasets differ in a field; both and the field are named.
    """
    shares = proportions(weights)
    if len(shares) != len(sources):
        raise InvalidArgumentError(f"{len(sources):,} sources were given, but {len(shares):,} weights")
    datasets = [source.dataset for source in sources]
    of_one = dataclasses.replace(ask, columns=_agreed_columns(datasets, ask.columns), epochs=1)
    seed = datasets[0].planned(of_one).request.order.seed
    orders = [
        dataclasses.replace(
            ask.order,
            seed=mix(seed, number),
            shuffle_buffer_bytes=max(ask.order.shuffle_buffer_bytes * share // sum(shares), 1),
        )
        for number, share in enumerate(shares)
    ]
    chosen = frozenset({"seed"} if ask.order.seed is None else ())

    def plans(selections: Sequence[Selection | None]) -> list[Plan]:
        asks = [dataclasses.replace(of_one, order=order) for order in orders]
        return [
            _with_chosen(dataset.planned(own, selection), chosen)
            for dataset, own, selection in zip(datasets, asks, selections, strict=True)
        ]

    # Refuses what cannot be, before a filter reads anything.
    mixture = Mixture(plans([None] * len(datasets)), weights, stop, batching, seed, ask.epochs, chosen)
    selections = [source.rows.selected(source.dataset, workers=workers) for source in sources]
    if all(selection is None for selection in selections):
        return mixture
    return dataclasses.replace(mixture, sources=plans(selections))


def _with_chosen(plan: Plan, chosen: frozenset[str]) -> Plan:
    return dataclasses.replace(plan, request=dataclasses.replace(plan.request, chosen=plan.request.chosen | chosen))


def _agreed_columns(datasets: Sequence[Dataset], wanted: Fields | None) -> list[str]:
    """The columns that are meant, which all datasets must have alike."""
    first = datasets[0]
    if wanted is None:
        views = [Unischema(dataset.schema.name, dataset.fields_of(None)) for dataset in datasets]
    else:
        names = [field.name for field in first.fields_of(wanted)]
        views = [
            Unischema(dataset.schema.name, [field for field in dataset.schema if field.name in names])
            for dataset in datasets
        ]
    return list(agreed_schema(views, [dataset.url for dataset in datasets]).fields)
