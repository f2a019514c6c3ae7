"""What a reader of several datasets by weight runs."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from petastore.decoding.decoded import Decoded
from petastore.errors import InvalidArgumentError
from petastore.plan.mixture.mixture import Mixture
from petastore.readers.assembly.assemble import SpanTransform, of_spans
from petastore.readers.execution.building import Cells, Outcome, build_execution
from petastore.readers.execution.execution import Execution
from petastore.readers.execution.first_row import described
from petastore.readers.execution.functions import Functions
from petastore.readers.loaded.loading import Loading
from petastore.readers.loaded.memory import Memory
from petastore.readers.mixed.mixed_datasets import MixedDatasets, agreed_schema
from petastore.readers.mixed.own_transforms import OwnTransforms
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema
from petastore.transforming.transform import TransformSpec
from petastore.work.workers import Workers

__all__ = ["execution_of_mixture"]


def execution_of_mixture(
    mixed: MixedDatasets,
    mixture: Mixture,
    *,
    workers: Workers,
    transform: TransformSpec | None = None,
    batched: bool = False,
    transforms: Sequence[TransformSpec | None] | None = None,
    source_column: str | None = None,
) -> Execution:
    """What a reader of a mixture runs.

    Args:
        mixed: The datasets, one for each source of the mixture.
        mixture: What is read, by whom and in what order.
        workers: Who does the work.
        transform: One function for all rows.
        batched: Whether iteration gives column batches, or else rows.
        transforms: In place of it, one (or None) for each source.
        source_column: The name of an int32 column that is added and says which source a row is of, from 0; None adds
            none. The function for all rows is given it too.

    Raises:
        SchemaError: The datasets, or what their functions make of them, differ in fields, dtypes or shapes.
        InvalidArgumentError: `source_column` is the name of a column that there is.
    """
    memory = Memory()
    each = [transform] * len(mixed.datasets) if transforms is None else list(transforms)
    is_apart = any(transform is not each[0] for transform in each)
    view, columns = mixed.schema, mixed.columns
    if not is_apart:
        view = _with_source(view, source_column)
        each = [_described_for_all(each[0], mixed, view, source_column, workers, batched=batched)] * len(each)
    else:
        selections = [source.selection for source in mixture.sources]
        of_sources = zip(each, mixed.datasets, selections, mixed.views, strict=True)
        each = [described(*of_source, workers=workers, batched=batched) for of_source in of_sources]
    transform = None if is_apart else each[0]
    functions = Functions.of(each, workers=workers, batched=batched)
    transformed: SpanTransform | None
    if is_apart:
        schema, transformed = _transformed_apart(mixed, each, functions, memory, source_column)
    else:
        if source_column is not None:
            columns = columns | {source_column: mixed.column_of_sources(source_column)}
        schema, of_all = functions.transform(transform, view, mixed, memory.buffers)
        transformed = of_spans(of_all)
    return build_execution(
        mixed,
        mixture,
        Cells(view, columns, list(zip(mixed.views, mixed.own_partition_values, strict=True))),
        Outcome(schema, transformed, functions, transform),
        memory,
        loading=functools.partial(
            Loading.of,
            first_groups=mixture.first_groups[:-1].tolist(),
            # Rows come from a file of each source at least, and from the next one.
            most_idle=4 * len(mixed.datasets),
            # Sources start over: which of their row groups are loaded again, and which are still at hand, is not told.
            ahead_bytes=0,
        ),
        workers=workers,
        batched=batched,
    )


def _described_for_all(
    spec: TransformSpec | None,
    mixed: MixedDatasets,
    view: Unischema,
    source_column: str | None,
    workers: Workers,
    *,
    batched: bool,
) -> TransformSpec | None:
    """A transform of all rows, by what it makes of the first row of the first source."""
    first = {} if source_column is None else {source_column: Decoded(np.zeros(1, np.int32), None)}
    selection, dataset = mixed.mixture.sources[0].selection, mixed.datasets[0]
    # A dataset's own fields know how it stores them, which may differ from source to source.
    own = Unischema(view.name, [field if field.name in first else dataset.schema[field.name] for field in view])
    return described(spec, dataset, selection, own, workers=workers, batched=batched, more=first)


def _transformed_apart(
    mixed: MixedDatasets,
    specs: Sequence[TransformSpec | None],
    functions: Functions,
    memory: Memory,
    source_column: str | None,
) -> tuple[Unischema, OwnTransforms]:
    """The schema after the transforms of all sources, and what does to columns what they ask for."""
    of_sources = zip(specs, mixed.views, mixed.datasets, strict=True)
    made = [functions.transform(spec, view, dataset, memory.buffers) for spec, view, dataset in of_sources]
    schema = _with_source(agreed_schema([schema for schema, _ in made], mixed.urls), source_column)
    return schema, OwnTransforms(mixed, tuple(transform for _, transform in made), schema, source_column)


def _with_source(schema: Unischema, name: str | None) -> Unischema:
    if name is None:
        return schema
    if name in schema:
        raise InvalidArgumentError(
            f"source_column={name!r}, but the datasets have a field of that name; choose another"
        )
    return Unischema(schema.name, [*schema, UnischemaField(name, np.int32)])
