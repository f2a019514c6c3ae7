"""Build the execution of a reader: the objects that load, assemble and transform the rows of its plan.

A reader reads one dataset, or several datasets that are mixed by weight.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from petastore.decoding.decode import Decoded
from petastore.plan.rank_plan import RankPlan
from petastore.readers.assembly.assemble import Assembler, SpanTransform, of_spans
from petastore.readers.execution.execution import Execution, Functions
from petastore.readers.execution.handouts import most_rows, output_of
from petastore.readers.execution.mixed_datasets import MixedDatasets, Readable, with_source
from petastore.readers.loaded.arena import Layout, ReusableMemory
from petastore.readers.loaded.footprint import Footprint
from petastore.readers.loaded.row_group_reader import RowGroupReader
from petastore.schema.unischema import Unischema
from petastore.storage.row_groups.open_files import OpenFiles, VerifiedRowGroups
from petastore.work.pools import Workers

if TYPE_CHECKING:
    from petastore.transforming.transform import TransformSpec

__all__ = ["Build", "Readable", "build_execution"]

Build: TypeAlias = Callable[..., Execution]
"""Factory of a reader's execution (its loaders, assembler and workers), such as `build_execution`."""


def build_execution(
    source: Readable,
    plan: RankPlan,
    *,
    workers: Workers,
    transform: TransformSpec | None = None,
    batched: bool = False,
    transforms: Sequence[TransformSpec | None] | None = None,
    source_column: str | None = None,
    provenance: bool = False,
) -> Execution:
    """Return the execution of a reader: its plan, row-group loaders, batch assembler and workers.

    Args:
        source: Dataset, or `MixedDatasets` of a mixture.
        plan: Plan of the rows of this rank and their order.
        workers: Number and kind of workers.
        transform: Transform of all rows; with `batched`, its function gets DataFrames by default.
        batched: Whether iteration yields batches of columns instead of rows.
        transforms: One transform (or None) for each dataset, instead of `transform`.
        source_column: Name of an int32 column to add, with the number of each row's dataset, from 0; None adds no
            column. `transform` also receives this column.
        provenance: Whether to add columns with the file, row group and row of each row.

    Raises:
        SchemaError: The datasets, or the outputs of their transforms, differ in fields, dtypes or shapes.
        InvalidArgumentError: A transform contradicts the schema or cannot be sent to a process; or `source_column` is
            the name of a field.
    """
    mixed = source if isinstance(source, MixedDatasets) else MixedDatasets(source.datasets, plan)
    memory, view, columns = ReusableMemory(), mixed.schema, mixed.columns
    each = [transform] * len(mixed.datasets) if transforms is None else list(transforms)
    transformed: SpanTransform | None
    if any(spec is not each[0] for spec in each):
        from petastore.readers.execution.own_transforms import transformed_apart  # imported here: few readers need it

        schema, transformed, functions = transformed_apart(
            mixed, each, memory.buffers, workers, batched=batched, source_column=source_column
        )
        transform = None
    else:
        view = with_source(view, source_column)
        transform = _described(each[0], mixed, view, source_column, workers, batched=batched)
        functions = Functions.of([transform] * len(each), workers=workers, batched=batched)
        if source_column is not None:
            columns = columns | {source_column: mixed.column_of_sources(source_column)}
        schema, of_all = functions.transform(transform, view, mixed, memory.buffers)
        transformed = of_spans(of_all)
    if provenance:
        from petastore.readers.execution.position import with_provenance  # imported here: few readers need it

        schema, transformed = with_provenance(schema, transformed, source.inventory)
    largest_group = int(plan.inventory.rows.max(initial=1))
    apart = {name for name, column in columns.items() if column.has_partition_values}
    layout = Layout.of(view, rows=largest_group, apart=apart)
    loaders = [
        RowGroupReader(
            layout,
            {field.name: field for field in own if field.name not in not_in_files},
            memory.buffers,
            most_bytes=workers.most_copied_bytes,
        )
        for own, not_in_files in zip(mixed.views, mixed.own_partition_values, strict=True)
    ]
    # A mixture reads files of all sources at the same time, so more idle files stay open than by default.
    most_idle = {} if len(loaders) == 1 else {"most_idle": 4 * len(loaders)}
    return Execution(
        source=source,
        plan=plan,
        loaders=tuple(loaders),
        memory=memory,
        files_of_pass=functools.partial(OpenFiles, verified=VerifiedRowGroups(), **most_idle),
        assembler=Assembler(
            inventory=source.inventory,
            view=view,
            schema=schema,
            columns=columns,
            transform=transformed,
            layout=layout,
            buffers=memory.buffers,
            max_cell_bytes=workers.max_cell_bytes,
            draws=functions.draw,
        ),
        view=view,
        schema=schema,
        layout=layout,
        row_schema=schema,
        footprint=Footprint(view, source.schema, layout, plan.inventory),
        functions=functions,
        hand_out=output_of(schema, plan.request.last_batch, batched=batched),
        rows_per_item=most_rows(largest_group) if batched else 1,
        workers=workers,
        batched=batched,
        transform=transform,
        provenance=provenance,
    )


def _described(
    spec: TransformSpec | None,
    mixed: MixedDatasets,
    view: Unischema,
    source_column: str | None,
    workers: Workers,
    *,
    batched: bool,
) -> TransformSpec | None:
    """Return the transform of all rows; if it lacks `edit_fields`, infer them from a row of the first dataset."""
    if spec is None:
        return None
    from petastore.readers.execution.first_row import described  # imported here: only transforms need it

    first = {} if source_column is None else {source_column: Decoded(np.zeros(1, np.int32), None)}
    dataset, selection = mixed.datasets[0], mixed.plan.sources[0].selection
    return described(spec, dataset, selection, view, workers=workers, batched=batched, more=first)
