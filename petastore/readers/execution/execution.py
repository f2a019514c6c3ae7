"""An execution: what a reader runs, as one value.

It says where cells come from, what the plan is, how row groups are loaded, how batches are assembled of them, and what
is handed out. Rows of a dataset, windows of rows and mixtures of datasets are built as such values, by
`petastore.readers.execution.row_execution`, `window_execution` and `mixed_execution`; the reader that runs them is one.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Protocol, TypeAlias

from petastore.decoding.cell_sizes import refuse_large_fields
from petastore.errors import InvalidArgumentError
from petastore.plan.plan import Plan
from petastore.plan.request import Tail
from petastore.readers.assembly.assemble import VALID_COLUMN, Assembles
from petastore.readers.execution.counts import counts_of
from petastore.readers.execution.functions import Functions
from petastore.readers.execution.handing_out import HandingOut
from petastore.readers.loaded.footprint import Footprint
from petastore.readers.loaded.layout import Layout
from petastore.readers.loaded.loading import Loading, Readable
from petastore.schema.unischema import Unischema
from petastore.work.workers import Workers

if TYPE_CHECKING:
    from petastore.plan.mixture.mixture import Mixture
    from petastore.plan.windows.ngram import NGram
    from petastore.plan.windows.windows import Windows
    from petastore.transforming.transform import TransformSpec

__all__ = ["AnyPlan", "Assembly", "Build", "Execution", "Readable", "WindowsOfRows"]

AnyPlan: TypeAlias = "Plan | Mixture"
"""What is read, by whom and in what order."""


@dataclasses.dataclass(frozen=True, eq=False)
class Assembly:
    """How batches are made of row groups at hand."""

    assembler: Assembles
    """Makes spans of batches."""

    view: Unischema
    """The fields that are read, before the transform."""

    schema: Unischema
    """The fields that come out."""

    layout: Layout
    """How row groups at hand are kept."""

    footprint: Footprint
    """What rows take in memory, at hand and in batches."""

    functions: Functions
    """The functions of transforms, and who calls them."""

    gives_stacks: bool
    """Whether columns that lie in one array when they are read come out in one array too."""

    @property
    def stacked_columns(self) -> list[tuple[str, ...]]:
        """Names of columns that come out in one array too, where none of their values is missing."""
        layout = self.layout
        if not self.gives_stacks:
            return []
        return [tuple(name for number in kind for name in layout.stacks[number].names) for kind in layout.kinds]


@dataclasses.dataclass(frozen=True, eq=False)
class WindowsOfRows:
    """What windows are, where rows that are handed out are windows of others."""

    ngram: NGram
    """What a window is, with the fields of the dataset."""

    windows: Windows
    """Which rows each window covers."""

    row_schema: Unischema
    """What the rows of windows are: all fields of all offsets, after the transform."""


@dataclasses.dataclass(frozen=True, eq=False)
class Execution:
    """What a reader runs. Memory and processes that it names are the reader's own, which ends them."""

    source: Readable
    """Where cells come from."""

    plan: AnyPlan
    """What is read, by whom and in what order."""

    loading: Loading
    """How row groups are loaded."""

    assembly: Assembly
    """How batches are assembled."""

    handing_out: HandingOut
    """What iterating gives."""

    workers: Workers
    """Who does the work."""

    batched: bool
    """Whether iterating gives column batches, or else rows."""

    transform: TransformSpec | None
    """The function for all rows, as it was given; None where there is none, or sources have functions of their own."""

    windows: WindowsOfRows | None = None
    """What windows are; None where rows are."""

    def on(self, plan: AnyPlan) -> Execution:
        """The same of another plan of the same rows: of another rank, or one that goes on where a state was taken."""
        return dataclasses.replace(self, plan=plan)

    def counts(self) -> dict[str, int]:
        """What was counted so far while its files were read; see `Reader.diagnostics`."""
        return counts_of(self.source.datasets)

    def refuse_what_cannot_be(self) -> None:
        """Looks at what no stage can see by itself.

        Raises:
            InvalidArgumentError: Values of a field are too large, or the column `valid` of `last_batch="pad"` is there
                already.
            NoDataAvailableError: `last_batch="even"` with fewer rows than shards.
        """
        refuse_large_fields(self.assembly.view, self.workers.max_cell_bytes)
        if self.plan.request.last_batch is Tail.PAD and VALID_COLUMN in self.assembly.schema:
            raise InvalidArgumentError(
                f"last_batch='pad' adds a column {VALID_COLUMN!r}, but the dataset has one already; leave it out by "
                "schema_fields, or use another last_batch"
            )
        self.plan.steps_per_epoch(self.handing_out.rows)

    def close(self) -> None:
        """Has processes of transforms end. May be called again, by any thread."""
        self.assembly.functions.close()

    def join(self) -> None:
        """Gives memory and open files back, and waits until no process runs, after `close`. May be called again."""
        self.loading.memory.close()
        for dataset in self.source.datasets:
            dataset.kept.close()
        self.assembly.functions.join()

    def __str__(self) -> str:
        request = self.plan.request
        what = "batches" if self.batched else "rows"
        return (
            f"{what} of {self.source.url}; shard {request.shard.index} of {request.shard.count}, "
            f"{self.plan.rows_per_epoch(self.handing_out.rows):,} of {self.plan.num_rows:,} rows, "
            f"{len(request.columns)} columns, {request.epochs_in_words}, seed {request.order.seed}"
        )


class Build(Protocol):
    """What makes an execution of what a reader is asked for; see `petastore.readers.execution.row_execution`."""

    def __call__(
        self, dataset: Readable, plan: AnyPlan, /, *, workers: Workers, transform: TransformSpec | None, batched: bool
    ) -> Execution:
        """The execution."""
