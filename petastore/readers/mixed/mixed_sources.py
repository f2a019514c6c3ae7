"""From what somebody wants to mix to a mixture: datasets opened, their rows selected, their plans made."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from petastore.dataset import Dataset, open_dataset
from petastore.errors import RequestError
from petastore.plan.mixture.mixed_line import proportions
from petastore.plan.mixture.mixture import Mixture
from petastore.plan.order.mix import mix
from petastore.plan.plan import Plan
from petastore.plan.request import whole_number
from petastore.readers.mixed.mixed_reader import agreed_schema
from petastore.schema.unischema import Unischema
from petastore.selecting.filter import select_rows
from petastore.work.workers import Workers

__all__ = ["MixedSource", "open_sources", "plan_mixture"]

_OF_DATASETS = ("storage_options", "filesystem", "storage_timeout")
_OF_ROWS = ("filters", "predicate", "rowgroup_selector", "selection_cache")


@dataclasses.dataclass(frozen=True)
class MixedSource:
    """A dataset to be mixed, and which of its rows."""

    dataset: Dataset
    """Where its rows are."""

    rows: Mapping[str, Any]
    """What `select_rows` is asked: `filters`, `predicate`, `rowgroup_selector`, `selection_cache`."""


def open_sources(given: Any, shared: Mapping[str, Any]) -> list[MixedSource]:
    """The datasets to be mixed.

    Args:
        given: For each source a URL, a `Dataset`, or a dict with `dataset_url` and whatever of `shared` is different
            for it.
        shared: `storage_options`, `filesystem`, `decode`, `filters`, `predicate`, `rowgroup_selector` and
            `selection_cache` of all others.

    Raises:
        RequestError: `given` is no list, or a dict has an unknown key.
        DatasetNotFoundError: There is no dataset there.
    """
    if isinstance(given, (str, bytes, os.PathLike, Mapping)) or not isinstance(given, Sequence) or not given:
        raise RequestError(f"a {type(given).__name__} is no list of datasets to mix; give [url, url, …]")
    return [_opened(source, shared) for source in given]


def _opened(source: Any, shared: Mapping[str, Any]) -> MixedSource:
    own = dict(source) if isinstance(source, Mapping) else {"dataset_url": source}
    unknown = sorted(map(str, set(own) - {"dataset_url", *shared}))
    if unknown or "dataset_url" not in own:
        raise RequestError(
            f"a source has {', '.join(map(repr, own))}; it needs 'dataset_url', and may have "
            f"{', '.join(map(repr, shared))}"
        )
    asked = {**shared, **own}
    dataset = asked["dataset_url"]
    if not isinstance(dataset, Dataset):
        dataset = open_dataset(dataset, **{name: asked[name] for name in _OF_DATASETS})
    return MixedSource(dataset.with_decode(asked["decode"]), {name: asked[name] for name in _OF_ROWS})


def plan_mixture(
    sources: Sequence[MixedSource], mixed: Mapping[str, Any], asked: Mapping[str, Any], *, workers: Workers
) -> Mixture:
    """The mixture of some sources. Each has a seed of its own, made of the one that was asked for.

    Args:
        sources: What is mixed.
        mixed: `weights`, `stop`, `batching` and `epochs` of the mixture.
        asked: What `Dataset.plan` is asked for each source, without `epochs` and `selection`; `shuffle_memory` is that
            of all sources together, which share it by weight.
        workers: Who looks for the rows that filters keep.

    Raises:
        RequestError: Something that was asked for cannot be.
        SchemaError: Two datasets differ in a field; both and the field are named.
    """
    shares = proportions(mixed["weights"])
    if len(shares) != len(sources):
        raise RequestError(f"{len(sources):,} sources were given, but {len(shares):,} weights")
    datasets = [source.dataset for source in sources]
    asked = {**asked, "columns": _agreed_columns(datasets, asked["columns"])}
    memory = whole_number(asked["shuffle_memory"], name="shuffle_memory", least=1)
    seed = datasets[0].plan(**asked).request.order.seed
    requests = [
        {**asked, "seed": mix(seed, number), "shuffle_memory": max(memory * share // sum(shares), 1)}
        for number, share in enumerate(shares)
    ]
    chosen = frozenset({"seed"} if asked["seed"] is None else ())
    plans = [_planned(dataset, request, chosen) for dataset, request in zip(datasets, requests, strict=True)]
    mixture = Mixture(
        plans, **mixed, seed=seed, chosen=chosen
    )  # refuses what cannot be, before a filter reads anything
    selections = [select_rows(source.dataset, workers=workers, **source.rows) for source in sources]
    if any(selection is not None for selection in selections):
        plans = [
            _planned(dataset, {**request, "selection": selection}, chosen)
            for dataset, request, selection in zip(datasets, requests, selections, strict=True)
        ]
        mixture = dataclasses.replace(mixture, sources=plans)
    return mixture


def _planned(dataset: Dataset, asked: Mapping[str, Any], chosen: frozenset[str]) -> Plan:
    plan = dataset.plan(**asked)
    return dataclasses.replace(plan, request=dataclasses.replace(plan.request, chosen=plan.request.chosen | chosen))


def _agreed_columns(datasets: Sequence[Dataset], wanted: Any) -> list[str]:
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
