"""Sources of a mixed reader: open the datasets, select their rows and plan the mixture."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from petastore.dataset import Dataset
from petastore.errors import InvalidArgumentError
from petastore.plan.mixture.mixed_line import proportions
from petastore.plan.mixture.mixture import Batching, Mixture, Stop
from petastore.plan.order.mix import mix
from petastore.plan.plan import Plan
from petastore.plan.request import Fields, PlanOptions
from petastore.plan.selection import Selection
from petastore.readers.bad_rows import selected_rows
from petastore.readers.execution.building import build_execution
from petastore.readers.execution.mixed_datasets import MixedDatasets, agreed_schema
from petastore.readers.option_signatures import names_of
from petastore.readers.options import DatasetOptions, RowOptions, RunOptions, Urls
from petastore.readers.reader import Reader
from petastore.schema.arrow import field_from_arrow
from petastore.schema.unified_types import unified_field
from petastore.schema.unischema import Unischema
from petastore.transforming.transform import AnyTransform, as_transform_spec
from petastore.work.pools import Workers

if TYPE_CHECKING:
    from petastore.readers.options import SourceArguments

__all__ = ["MixedReader", "SourceGiven", "open_sources", "plan_mixture"]

SourceGiven: TypeAlias = "Urls | Dataset | SourceArguments"
"""Source of a mixture, as the user passes it: a URL, a list of URLs, a `Dataset`, or a dict of options."""


def open_sources(
    given: Sequence[SourceGiven], dataset: DatasetOptions, rows: RowOptions
) -> tuple[list[Dataset], list[RowOptions]]:
    """Open the datasets of a mixture; return them, and the options that select rows of each dataset.

    Args:
        given: For each source, a URL, a `Dataset`, or a dict with `dataset_url` and the options of this source.
        dataset: Dataset options of all sources; its URL is ignored.
        rows: Row options of all sources.

    Raises:
        InvalidArgumentError: `given` is not a list, or a dict has an unknown key.
        DatasetNotFoundError: A URL has no dataset.
    """
    if isinstance(given, (str, bytes, os.PathLike, Mapping)) or not isinstance(given, Sequence) or not given:
        raise InvalidArgumentError(
            f"sources must be a list of datasets, such as [url, url], got {type(given).__name__}"
        )
    asks = [_ask_of(source, dataset, rows) for source in given]
    datasets = _with_equal_types([own.opened() for own, _ in asks])
    of_rows = [own_rows for _, own_rows in asks]
    for quarantine in {own_rows.quarantine for own_rows in of_rows if own_rows.quarantine is not None}:
        from petastore.readers.bad_rows.quarantine import refuse_quarantine_inside  # few mixtures need it

        refuse_quarantine_inside(quarantine, datasets)
    if not rows.exclude_rows:
        return datasets, of_rows
    from petastore.readers.bad_rows.excluded_rows import divide_excluded_rows  # few mixtures need it

    sharing = [number for number, each in enumerate(given) if not _has_own_exclude_rows(each)]
    divided = divide_excluded_rows(rows.exclude_rows, [datasets[number] for number in sharing])
    for number, places in zip(sharing, divided, strict=True):
        of_rows[number] = dataclasses.replace(of_rows[number], exclude_rows=places)
    return datasets, of_rows


def _has_own_exclude_rows(source: SourceGiven) -> bool:
    """Return whether a source has its own `exclude_rows`, instead of that of the mixture."""
    return isinstance(source, Mapping) and "exclude_rows" in source


def _with_equal_types(datasets: Sequence[Dataset]) -> list[Dataset]:
    """Cast fields of different types to a common type, if a type holds all values exactly; return the datasets.

    Fields with a codec, partition columns, and fields that a dataset lacks are not cast.
    """
    first, *others = datasets
    fields: dict[str, Any] = {}
    for name in first.schema.fields:
        if any(name not in dataset.schema or name in dataset.partition_names for dataset in datasets):
            continue
        same = [dataset.schema[name] for dataset in datasets]
        is_equal = all((field.dtype_name, field.shape) == (same[0].dtype_name, same[0].shape) for field in same)
        if is_equal or any(field.codec is not None for field in same):
            continue
        found = unified_field([dataset.arrow_schema.field(name) for dataset in datasets])
        if found is not None:
            fields[name] = found
    return [_cast(dataset, fields) for dataset in datasets] if fields else [first, *others]


def _cast(dataset: Dataset, fields: Mapping[str, Any]) -> Dataset:
    """Return a dataset that reads these fields as the given Arrow types."""
    read = [
        field_from_arrow(fields[field.name].with_nullable(field.nullable)) if field.name in fields else field
        for field in dataset.schema
    ]
    stored = [fields.get(field.name, field) for field in dataset.arrow_schema]
    return dataclasses.replace(dataset, schema=Unischema(dataset.schema.name, read), unified=pa.schema(stored))


def _ask_of(given: SourceGiven, dataset: DatasetOptions, rows: RowOptions) -> tuple[DatasetOptions, RowOptions]:
    """Return the dataset and row options of a source: options of the mixture, replaced by the source's own."""
    if not isinstance(given, Mapping):
        return dataclasses.replace(dataset, url=given), rows
    known = [*names_of(DatasetOptions), *names_of(RowOptions)]
    if not set(given) <= {"dataset_url", *known} or "dataset_url" not in given:
        raise InvalidArgumentError(
            f"a source must have 'dataset_url', and may have {', '.join(map(repr, known))}, got "
            f"{', '.join(map(repr, given))}"
        )
    own: dict[str, Any] = {name: value for name, value in given.items() if name in known}
    of_dataset = {name: value for name, value in own.items() if name in names_of(DatasetOptions)}
    of_rows = {name: value for name, value in own.items() if name in names_of(RowOptions)}
    return dataclasses.replace(dataset, url=given["dataset_url"], **of_dataset), dataclasses.replace(rows, **of_rows)


def plan_mixture(
    datasets: Sequence[Dataset],
    rows: Sequence[RowOptions],
    weights: Sequence[Any],
    ask: PlanOptions,
    run: RunOptions,
    *,
    stop: Stop,
    batching: Batching,
    source_column: str | None = None,
) -> Mixture:
    """Plan the mixture of some sources. Each source's seed is derived from the mixture's seed.

    Args:
        datasets: Datasets of the sources.
        rows: Options that select rows of each dataset.
        weights: Weight of each source.
        ask: Plan options of the mixture; the sources share its `shuffle_buffer_bytes` by weight.
        run: Workers that scan for selected rows, and the transform of all rows.
        stop: Rule for the end of an epoch, such as `"first_exhausted"`; see `Mixture.stop`.
        batching: `"mixed"` or `"per_source"`: whether a batch has rows of all sources or of one source.
        source_column: Name of the column with the number of each row's source, or None.

    Raises:
        InvalidArgumentError: An option is invalid; the message names it.
        SchemaError: Two datasets differ in a field; the message names the field and both datasets.
    """
    shares = proportions(weights)
    if len(shares) != len(datasets):
        raise InvalidArgumentError(f"weights must be one number per source ({len(datasets):,}), got {len(shares):,}")
    columns = _agreed_columns(datasets, ask.columns)
    of_one = dataclasses.replace(ask, columns=columns, epochs=1)
    seed = datasets[0].planned(of_one).request.order.seed
    orders = [
        dataclasses.replace(
            ask.order,
            seed=mix(seed, number),
            shuffle_buffer_bytes=max(ask.order.buffer_bytes * share // sum(shares), 1),
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

    # The mixture is first planned without selections, so that invalid options raise before a filter reads data.
    mixture = Mixture(plans([None] * len(datasets)), weights, stop, batching, seed, ask.epochs, chosen)
    selections = [
        selected_rows(
            dataset, columns, own_rows, run, source=None if source_column is None else (source_column, number)
        )
        for number, (dataset, own_rows) in enumerate(zip(datasets, rows, strict=True))
    ]
    if all(selection is None for selection in selections):
        return mixture
    return dataclasses.replace(mixture, sources=plans(selections))


def _with_chosen(plan: Plan, chosen: frozenset[str]) -> Plan:
    """Return the plan with a record that petastore, not the user, has chosen these parameters."""
    return dataclasses.replace(plan, request=dataclasses.replace(plan.request, chosen=plan.request.chosen | chosen))


def _agreed_columns(datasets: Sequence[Dataset], wanted: Fields | None) -> list[str]:
    """Return the names of the selected columns; raise an error if datasets differ in a column's dtype or shape."""
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


def MixedReader(  # noqa: N802 - a public name, like that of a class
    datasets: Sequence[Dataset],
    mixture: Mixture,
    *,
    workers: Workers,
    transforms: AnyTransform | Sequence[AnyTransform | None] | None = None,
    batched: bool = False,
    source_column: str | None = None,
    provenance: bool = False,
) -> Reader:
    """Reader of several datasets, with all methods of `Reader`.

    Args:
        datasets: Dataset of each source of the mixture.
        mixture: Plan of the mixture.
        workers: Number and kind of workers.
        transforms: One transform for all rows, or one transform (or None) for each source.
        batched: Whether iteration yields batches of columns instead of rows.
        source_column: Name of an int32 column to add, with the number of each row's source, from 0; None adds no
            column. A transform for all rows also receives this column.
        provenance: Whether to add columns with the file, row group and row of each row.

    Raises:
        SchemaError: The datasets, or the outputs of their transforms, differ in fields, dtypes or shapes.
        InvalidArgumentError: `source_column` is the name of an existing column.
    """
    of_sources = [as_transform_spec(each) for each in transforms] if isinstance(transforms, Sequence) else None
    mixture = dataclasses.replace(mixture, urls=tuple(dataset.url for dataset in datasets))
    return Reader(
        MixedDatasets(tuple(datasets), mixture),
        mixture,
        workers=workers,
        transform=None if isinstance(transforms, Sequence) else transforms,
        batched=batched,
        build=functools.partial(
            build_execution, transforms=of_sources, source_column=source_column, provenance=provenance
        ),
    )
