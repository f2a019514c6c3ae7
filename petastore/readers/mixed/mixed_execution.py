"""What a reader of several datasets by weight runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from petastore.errors import RequestError
from petastore.plan.mixture.mixture import Mixture
from petastore.readers.assembly.assemble import Assembler
from petastore.readers.execution.execution import Assembly, Execution
from petastore.readers.execution.functions import Functions
from petastore.readers.execution.row_execution import handing_out_rows, loader_for
from petastore.readers.loaded.footprint import Footprint
from petastore.readers.loaded.layout import Layout
from petastore.readers.loaded.loading import Loading
from petastore.readers.loaded.memory import Memory
from petastore.readers.mixed.mixed_datasets import MixedAssembler, MixedDatasets, agreed_schema
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
        RequestError: `source_column` is the name of a column that there is.
    """
    memory = Memory()
    each = [transform] * len(mixed.datasets) if transforms is None else list(transforms)
    is_apart = any(transform is not each[0] for transform in each)
    transform = None if is_apart else each[0]
    functions = Functions.of(each, workers=workers, batched=batched)
    partition_values = [mixed.own_partition_values(source) for source in range(len(each))]
    layout = _layout(mixed, {name for own in partition_values for name in own}, source_column)
    parts = _assemblers(mixed, partition_values, each if is_apart else [None] * len(each), functions, layout, memory)
    view = _with_source(agreed_schema([part.schema for part in parts], mixed.urls), source_column)
    schema, transformed = functions.transform(transform, view, mixed, memory.buffers)
    assembler = MixedAssembler(
        inventory=mixed.inventory,
        view=view,
        schema=schema,
        partition_values=mixed.partition_values(mixture.request.columns),
        transform=transformed,
        layout=layout,
        buffers=memory.buffers,
        max_cell_bytes=workers.max_cell_bytes,
        parts=parts,
        is_apart=is_apart,
        datasets=mixed,
        source_column=source_column,
    )
    return Execution(
        source=mixed,
        plan=mixture,
        loading=Loading.of(
            [loader_for(part, workers) for part in parts],
            memory,
            first_groups=mixture.first_groups[:-1].tolist(),
            # Rows come from a file of each source at least, and from the next one.
            most_idle=4 * len(mixed.datasets),
        ),
        assembly=Assembly(
            assembler=assembler,
            view=view,
            schema=schema,
            layout=layout,
            footprint=Footprint(view, mixed.schema, layout, mixture.inventory),
            functions=functions,
            gives_stacks=transform is None,
        ),
        handing_out=handing_out_rows(schema, mixture, batched=batched),
        workers=workers,
        batched=batched,
        transform=transform,
    )


def _layout(mixed: MixedDatasets, apart: set[str], source_column: str | None) -> Layout:
    """How row groups of all sources are kept."""
    layout = Layout.of(mixed.schema, rows=int(mixed.mixture.inventory.rows.max(initial=1)), apart=apart)
    return layout if source_column is None else dataclasses.replace(layout, encoded=(*layout.encoded, source_column))


def _assemblers(
    mixed: MixedDatasets,
    partition_values: Sequence[Mapping[str, Any]],
    transforms: Sequence[TransformSpec | None],
    functions: Functions,
    layout: Layout,
    memory: Memory,
) -> tuple[Assembler, ...]:
    """What makes the rows of each source alone."""
    made = []
    of_sources = zip(mixed.datasets, mixed.views, partition_values, transforms, strict=True)
    for dataset, view, own_values, spec in of_sources:
        schema, transformed = functions.transform(spec, view, dataset, memory.buffers)
        made.append(
            Assembler(
                inventory=mixed.inventory,
                view=view,
                schema=schema,
                partition_values=own_values,
                transform=transformed,
                layout=layout,
                buffers=memory.buffers,
                max_cell_bytes=functions.workers.max_cell_bytes,
            )
        )
    return tuple(made)


def _with_source(schema: Unischema, name: str | None) -> Unischema:
    if name is None:
        return schema
    if name in schema:
        raise RequestError(f"source_column={name!r}, but the datasets have a field of that name; choose another")
    return Unischema(schema.name, [*schema, UnischemaField(name, np.int32)])
