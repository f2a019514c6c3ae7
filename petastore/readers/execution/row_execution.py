"""What a reader of the rows of one dataset runs."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from petastore.plan.plan import Plan
from petastore.readers.assembly.assemble import of_spans
from petastore.readers.assembly.encoded import EncodedColumn
from petastore.readers.execution.building import Cells, Outcome, build_execution
from petastore.readers.execution.execution import AnyPlan, Execution
from petastore.readers.execution.functions import Functions
from petastore.readers.loaded.fetch_ahead import MOST_BYTES_AHEAD
from petastore.readers.loaded.loading import Loading, Readable
from petastore.readers.loaded.memory import Memory
from petastore.schema.unischema import Unischema
from petastore.work.workers import Workers

if TYPE_CHECKING:
    from petastore.transforming.transform import TransformSpec

__all__ = ["execution_of_rows"]


def execution_of_rows(
    dataset: Readable,
    plan: AnyPlan,
    *,
    workers: Workers,
    transform: TransformSpec | None = None,
    batched: bool = False,
    provenance: bool = False,
) -> Execution:
    """What a reader of the rows of a dataset runs.

    Args:
        dataset: Where the plan's row groups are.
        plan: What is read, in what order.
        workers: Who does the work.
        transform: A function for rows, or for DataFrames where `batched`.
        batched: Whether iteration gives column batches, or else rows.
        provenance: Whether columns are added that say where rows come from.

    Raises:
        InvalidArgumentError: The transform contradicts the schema, or cannot be sent to a process.
    """
    columns, memory = plan.request.columns, Memory()
    view = Unischema(f"{dataset.schema.name}_view", [dataset.schema[name] for name in columns])
    (source,), selection = dataset.datasets, plan.selection if isinstance(plan, Plan) else None
    if transform is not None:
        from petastore.readers.execution.first_row import described  # with all that calls functions

        transform = described(transform, source, selection, view, workers=workers, batched=batched)
    functions = Functions.of([transform], workers=workers, batched=batched)
    schema, transformed = functions.transform(transform, view, dataset, memory.buffers)
    of_spans_made = of_spans(transformed)
    if provenance:
        from petastore.readers.execution.provenance import with_provenance  # with what few readers need

        schema, of_spans_made = with_provenance(schema, of_spans_made, source.inventory)
    partition_values = dataset.partition_values(columns)
    return build_execution(
        dataset,
        plan,
        Cells(
            view,
            {field.name: EncodedColumn.of(field, partition_values.get(field.name)) for field in view},
            [(view, partition_values)],
        ),
        Outcome(schema, of_spans_made, functions, transform),
        memory,
        loading=functools.partial(Loading.of, ahead_bytes=MOST_BYTES_AHEAD if workers.memory_budget is None else 0),
        workers=workers,
        batched=batched,
    )
