"""Mixed readers: open the datasets, select their rows and plan the mixture; also `WeightedSamplingReader`.

`WeightedSamplingReader` mixes the rows of several readers by probability, as in Petastorm.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from petastore.dataset import Dataset
from petastore.errors import InvalidArgumentError
from petastore.plan.cursor import Cursor
from petastore.plan.fixed_share import fixed_share
from petastore.plan.mixture.mixed_line import proportions
from petastore.plan.mixture.mixture import Batching, Mixture, Stop
from petastore.plan.order.mix import mix
from petastore.plan.plan import Plan
from petastore.plan.request import Fields, PlanOptions
from petastore.plan.selection import Selection
from petastore.plan.windows.windows import Windows
from petastore.readers.bad_rows import selected_rows
from petastore.readers.execution.building import build_execution
from petastore.readers.execution.execution import Execution
from petastore.readers.execution.mixed_datasets import MixedDatasets, agreed_schema
from petastore.readers.option_signatures import names_of
from petastore.readers.options import DatasetOptions, RowOptions, RunOptions, Urls
from petastore.readers.reader import Reader
from petastore.readers.window_reader import execution_of_windows
from petastore.schema.arrow import field_from_arrow
from petastore.schema.unified_types import unified_field
from petastore.schema.unischema import Unischema
from petastore.transforming.transform import AnyTransform, TransformSpec, as_transform_spec
from petastore.work.pools import Workers

if TYPE_CHECKING:
    from petastore.readers.options import SourceArguments

__all__ = ["MixedReader", "SourceGiven", "WeightedSamplingReader", "open_sources", "plan_mixture"]

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


class WeightedSamplingReader(Reader):
    """A reader that mixes the rows of several readers by probability, with all methods of `Reader`.

    Mixing is deterministic: proportions are fixed, and equal seeds give the same rows in every run, also after a
    resume. Iteration ends when the rows of one reader are used up (all epochs of this reader, on all ranks). If all
    readers are endless, iteration never ends. Do not iterate or close the readers yourself: this reader uses their
    plan, dataset and transform, and closes them.

    Readers from `make_reader` are mixed row by row. With readers from `make_batch_reader`, each batch comes from one
    reader, as in Petastorm. Readers of windows are mixed window by window, and must have equal `NGram`s.

    If all readers have the same shard, the mixture is divided among the ranks row by row. Otherwise each rank mixes its
    own shard of each source, with the same rows in every epoch. All ranks then get the same number of rows, and up to
    `shard_count - 1` rows of a source are dropped.

    Args:
        readers: At least two readers, all from `make_reader` or all from `make_batch_reader`, with the same
            `last_batch` and equal fields.
        probabilities: One number per reader, at least 0; only their ratio matters. A reader with probability 0 is never
            read, and does not end the epoch.
        batching: `"mixed"` or `"per_source"`, as in `make_mixed_reader`; None means `"per_source"` for batch readers,
            else `"mixed"`.
        seed: Seed of the order in which readers alternate; None derives it from the seeds of the readers.
        source_column: Name of an int32 column to add: index of the row's reader in `readers`. None adds no column.

    Raises:
        InvalidArgumentError: There are fewer than two readers, row and batch readers are combined, a reader was already
            iterated or closed, or a probability is invalid.
        SchemaError: The readers differ in a field; the message names both datasets and the field.

    Example:
        >>> import tempfile, petastore
        >>> schema = petastore.Unischema("number", [petastore.UnischemaField("id", "int64")])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name, first in (("/a", 0), ("/b", 100)):
        ...         _ = petastore.write_dataset(folder + name, schema, [{"id": first + n} for n in range(4)])
        ...     readers = [petastore.make_reader(folder + name, shuffle_row_groups=False) for name in ("/a", "/b")]
        ...     with WeightedSamplingReader(readers, [0.75, 0.25]) as reader:
        ...         [int(row.id) for row in reader]
        [0, 100, 1, 2, 3]
    """

    def __init__(
        self,
        readers: Sequence[Reader],
        probabilities: Sequence[Any],
        *,
        batching: Batching | None = None,
        seed: int | None = None,
        source_column: str | None = None,
    ) -> None:
        self.readers = tuple(readers)
        """The readers that are mixed, in the order given."""
        datasets = _checked(self.readers)
        if len(probabilities) != len(datasets):
            raise InvalidArgumentError(
                f"probabilities must be one number per reader ({len(datasets):,}), got {len(probabilities):,}"
            )
        chosen = [number for number, weight in enumerate(probabilities) if weight != 0] or [0]
        if len(chosen) < len(datasets) and source_column is not None:
            raise InvalidArgumentError(
                f"source_column must be None if a reader has probability 0, got {source_column!r}. Leave out readers "
                "with probability 0"
            )
        mixed = [self.readers[number] for number in chosen]
        first = mixed[0]
        if first.windows is not None and source_column is not None:
            raise InvalidArgumentError(f"source_column must be None for windows, got {source_column!r}")
        batching = batching or ("per_source" if first.batched_output else "mixed")
        weights = [probabilities[number] for number in chosen]
        mixture = _mixture(mixed, weights, batching=batching, seed=seed)
        super().__init__(
            MixedDatasets(tuple(datasets[number] for number in chosen), mixture),
            mixture,
            workers=first.workers,
            batched=first.batched_output,
            build=functools.partial(_execution, mixed, source_column),
        )

    def stop(self) -> None:
        """Stop reading, and stop the given readers. Any thread may call it, repeatedly."""
        super().stop()
        for reader in self.readers:
            reader.stop()

    def join(self) -> None:
        """Wait until all workers have ended, after `stop`. May be called repeatedly."""
        super().join()
        for reader in self.readers:
            reader.join()


def _checked(readers: Sequence[Reader]) -> list[Dataset]:
    """Return the datasets of the readers; raise an error if the readers cannot be mixed."""
    if len(readers) < 2:
        raise InvalidArgumentError(
            f"readers must have at least two readers, got {len(readers)}. Use a single reader without mixing"
        )
    datasets = []
    for number, reader in enumerate(readers):
        if not isinstance(reader, Reader) or not isinstance(reader.dataset, Dataset):
            raise InvalidArgumentError(
                f"readers must come from make_reader or make_batch_reader, got {reader!r:.100} as reader {number}"
            )
        ours, first = reader.ngram, readers[0].ngram
        if not (ours is first or (ours is not None and first is not None and ours.asks_the_same(first))):
            raise InvalidArgumentError(
                f"readers must all return windows of one NGram, or all return rows, got {ours or 'rows'} from reader "
                f"{number} "
                f"and {first or 'rows'} from reader 0"
            )
        if reader.stopped or reader.cursor != Cursor():
            raise InvalidArgumentError(
                f"readers must not have been iterated or closed before, got reader {number}, which was. Make a new "
                "reader"
            )
        if reader.batched_output != readers[0].batched_output:
            raise InvalidArgumentError(
                "readers must all be made by make_reader, or all by make_batch_reader, got both kinds"
            )
        datasets.append(reader.dataset)
    agreed_schema([reader.schema for reader in readers], [dataset.url for dataset in datasets])
    return datasets


def _execution(
    readers: Sequence[Reader],
    source_column: str | None,
    mixed: MixedDatasets,
    mixture: Mixture,
    *,
    workers: Workers,
    transform: TransformSpec | None,
    batched: bool,
) -> Execution:
    """Return the execution for the rows or windows of all readers, each with its own transform."""
    transforms = [reader.transform for reader in readers]
    rows = build_execution(
        mixed,
        mixture,
        workers=workers,
        transform=transform,
        batched=batched,
        transforms=transforms,
        source_column=source_column,
        provenance=all(reader.provenance for reader in readers),
    )
    windows = [reader.windows for reader in readers if reader.windows is not None]
    ngram = readers[0].ngram
    return rows if ngram is None else execution_of_windows(rows, ngram, Windows.joined(windows))


def _mixture(readers: Sequence[Reader], weights: Sequence[Any], *, batching: Batching, seed: int | None) -> Mixture:
    plans = [reader.plan for reader in readers if isinstance(reader.plan, Plan)]
    if len({plan.request.shard for plan in plans}) > 1:
        plans = [fixed_share(plan) for plan in plans]
    is_endless = all(plan.request.epochs is None for plan in plans)
    are_drawn = seed is None and any("seed" in plan.request.chosen for plan in plans)
    return Mixture(
        plans,
        weights,
        stop="cycle" if is_endless else "first_exhausted",
        batching=batching,
        seed=mix(*(plan.request.order.seed for plan in plans)) if seed is None else seed,
        epochs=None if is_endless else 1,
        chosen=frozenset({"seed"} if are_drawn else ()),
        urls=tuple(reader.dataset.url for reader in readers),
    )
