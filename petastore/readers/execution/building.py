"""Builds an execution, of rows or of a mixture: of the cells that are read, and of what comes out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from petastore.readers.assembly.assemble import Assembler, SpanTransform
from petastore.readers.assembly.encoded import EncodedColumn
from petastore.readers.execution.execution import AnyPlan, Assembly, Execution
from petastore.readers.execution.functions import Functions
from petastore.readers.execution.handing_out import GivesBatches, GivesRows, HandingOut, most_rows
from petastore.readers.loaded.footprint import Footprint
from petastore.readers.loaded.layout import Layout
from petastore.readers.loaded.loader import RowGroupLoader
from petastore.readers.loaded.loading import Loading, Readable
from petastore.readers.loaded.memory import Memory
from petastore.schema.unischema import Unischema
from petastore.work.workers import Workers

if TYPE_CHECKING:
    from petastore.transforming.transform import TransformSpec

__all__ = ["Cells", "Outcome", "build_execution"]


@dataclasses.dataclass(frozen=True, eq=False)
class Cells:
    """The stored cells that are read."""

    view: Unischema
    """The fields that are read."""

    columns: Mapping[str, EncodedColumn]
    """Of each of them: where its cells are, and how they are decoded."""

    of_datasets: Sequence[tuple[Unischema, Collection[str]]]
    """Of each dataset: those fields, with its codecs, and the names of those that are not read from its files."""


@dataclasses.dataclass(frozen=True, eq=False)
class Outcome:
    """What comes out where cells were decoded."""

    schema: Unischema
    """Its fields."""

    transform: SpanTransform | None
    """What makes it of the fields that are read; None where it is these."""

    functions: Functions
    """The users' functions that it calls."""

    spec: TransformSpec | None
    """The function for all rows; None where there is none, or sources have functions of their own."""


def build_execution(
    source: Readable,
    plan: AnyPlan,
    cells: Cells,
    outcome: Outcome,
    memory: Memory,
    *,
    loading: Callable[[Sequence[RowGroupLoader], Memory], Loading],
    workers: Workers,
    batched: bool,
) -> Execution:
    """What a reader runs.

    Args:
        source: Where row groups are.
        plan: What is read, by whom and in what order.
        cells: What is read of them.
        outcome: What comes out.
        memory: Where row groups and batches are kept.
        loading: Makes of what takes in row groups, one for each dataset, how they are loaded.
        workers: Who does the work.
        batched: Whether iteration gives column batches, or else rows.
    """
    view, largest_group = cells.view, int(plan.inventory.rows.max(initial=1))
    apart = {name for name, column in cells.columns.items() if column.has_partition_values}
    layout = Layout.of(view, rows=largest_group, apart=apart)
    loaders = [
        RowGroupLoader(
            layout,
            {field.name: field for field in own if field.name not in not_in_files},
            memory.buffers,
            most_bytes=workers.most_copied_bytes,
        )
        for own, not_in_files in cells.of_datasets
    ]
    return Execution(
        source=source,
        plan=plan,
        loading=loading(loaders, memory),
        assembly=Assembly(
            assembler=Assembler(
                inventory=source.inventory,
                view=view,
                schema=outcome.schema,
                columns=cells.columns,
                transform=outcome.transform,
                layout=layout,
                buffers=memory.buffers,
                max_cell_bytes=workers.max_cell_bytes,
                draws=outcome.functions.draw,
            ),
            view=view,
            schema=outcome.schema,
            layout=layout,
            footprint=Footprint(view, source.schema, layout, plan.inventory),
            functions=outcome.functions,
            gives_stacks=outcome.transform is None,
        ),
        handing_out=_handing_out(outcome.schema, plan, largest_group, batched=batched),
        workers=workers,
        batched=batched,
        transform=outcome.spec,
    )


def _handing_out(schema: Unischema, plan: AnyPlan, largest_group: int, *, batched: bool) -> HandingOut:
    """What iterating gives where rows of this schema come out."""
    last_batch = plan.request.last_batch
    return GivesBatches(schema, last_batch, most_rows(largest_group)) if batched else GivesRows(schema, last_batch)
