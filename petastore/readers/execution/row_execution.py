"""What a reader of the rows of one dataset runs."""

from __future__ import annotations

from collections.abc import Collection

from petastore.plan.mixture.mixture import Mixture
from petastore.readers.assembly.assemble import Assembler, of_spans
from petastore.readers.assembly.encoded import EncodedColumn
from petastore.readers.execution.execution import AnyPlan, Assembly, Execution
from petastore.readers.execution.first_row import described
from petastore.readers.execution.functions import Functions
from petastore.readers.execution.handing_out import GivesBatches, GivesRows, HandingOut, most_rows
from petastore.readers.loaded.fetch_ahead import MOST_BYTES_AHEAD
from petastore.readers.loaded.footprint import Footprint
from petastore.readers.loaded.layout import Layout
from petastore.readers.loaded.loader import RowGroupLoader
from petastore.readers.loaded.loading import Loading, Readable
from petastore.readers.loaded.memory import Memory
from petastore.schema.unischema import Unischema
from petastore.transforming.transform import TransformSpec
from petastore.work.workers import Workers

__all__ = ["execution_of_rows", "handing_out_rows", "loader_for"]


def execution_of_rows(
    dataset: Readable,
    plan: AnyPlan,
    *,
    workers: Workers,
    transform: TransformSpec | None = None,
    batched: bool = False,
) -> Execution:
    """What a reader of the rows of a dataset runs.

    Args:
        dataset: Where the plan's row groups are.
        plan: What is read, in what order.
        workers: Who does the work.
        transform: A function for rows, or for DataFrames where `batched`.
        batched: Whether iteration gives column batches, or else rows.

    Raises:
        RequestError: The transform contradicts the schema, or cannot be sent to a process.
    """
    columns, memory = plan.request.columns, Memory()
    view = Unischema(f"{dataset.schema.name}_view", [dataset.schema[name] for name in columns])
    (source,), selection = dataset.datasets, None if isinstance(plan, Mixture) else plan.selection
    transform = described(transform, source, selection, view, workers=workers, batched=batched)
    functions = Functions.of([transform], workers=workers, batched=batched)
    schema, transformed = functions.transform(transform, view, dataset, memory.buffers)
    partition_values = dataset.partition_values(columns)
    largest_group = int(plan.inventory.rows.max(initial=1))
    layout = Layout.of(view, rows=largest_group, apart=set(partition_values))
    assembler = Assembler(
        inventory=dataset.inventory,
        view=view,
        schema=schema,
        columns={field.name: EncodedColumn.of(field, partition_values.get(field.name)) for field in view},
        transform=of_spans(transformed),
        layout=layout,
        buffers=memory.buffers,
        max_cell_bytes=workers.max_cell_bytes,
    )
    return Execution(
        source=dataset,
        plan=plan,
        loading=Loading.of(
            [loader_for(view, partition_values, assembler, workers)],
            memory,
            ahead_bytes=MOST_BYTES_AHEAD if workers.memory_budget is None else 0,
        ),
        assembly=Assembly(
            assembler=assembler,
            view=view,
            schema=schema,
            layout=layout,
            footprint=Footprint(view, dataset.schema, layout, plan.inventory),
            functions=functions,
            gives_stacks=transform is None,
        ),
        handing_out=handing_out_rows(schema, plan, batched=batched),
        workers=workers,
        batched=batched,
        transform=transform,
    )


def loader_for(
    view: Unischema, partition_values: Collection[str], assembler: Assembler, workers: Workers
) -> RowGroupLoader:
    """What takes in row groups for an assembler.

    Args:
        view: The fields that are read, with the codecs of the dataset.
        partition_values: Those that are not read from files.
        assembler: What makes batches of the row groups.
        workers: Who does the work.
    """
    stored = {field.name: field for field in view if field.name not in partition_values}
    return RowGroupLoader(assembler.layout, stored, assembler.buffers, most_bytes=workers.most_copied_bytes)


def handing_out_rows(schema: Unischema, plan: AnyPlan, *, batched: bool) -> HandingOut:
    """What iterating gives where rows of this schema come out."""
    tail = plan.request.tail
    if not batched:
        return GivesRows(schema, tail)
    return GivesBatches(schema, tail, most_rows(int(plan.inventory.rows.max(initial=1))))
