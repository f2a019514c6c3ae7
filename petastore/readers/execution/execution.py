"""Execution of a reader: one object with its datasets, plan, row-group loaders, batch assembler and workers.

`petastore.readers.execution.building` builds an execution for one or several datasets. For windows,
`petastore.readers.window_reader` builds an execution on top of the execution that reads the rows.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from petastore.dataset import Dataset
from petastore.decoding.buffers import Buffers
from petastore.decoding.decode import refuse_large_fields
from petastore.errors import InvalidArgumentError
from petastore.lazy import once
from petastore.plan.plan import Plan
from petastore.plan.rank_plan import RankPlan
from petastore.plan.request import LastBatch
from petastore.readers.assembly.assemble import VALID_COLUMN, AssembledSpan, Assembler, Assembles
from petastore.readers.execution.handouts import Handout
from petastore.readers.execution.mixed_datasets import Readable
from petastore.readers.loaded.arena import Layout, ReusableMemory
from petastore.readers.loaded.footprint import Footprint
from petastore.readers.loaded.loading import Extended
from petastore.readers.loaded.row_group_reader import RowGroupReader
from petastore.schema.unischema import Unischema
from petastore.storage.row_groups.open_files import OpenFiles
from petastore.work.pools import Workers

if TYPE_CHECKING:
    from petastore.cache.entries import CacheMetrics
    from petastore.plan.windows.ngram import NGram
    from petastore.plan.windows.windows import Windows
    from petastore.transforming.processes import TransformProcesses
    from petastore.transforming.transform import Transform, TransformSpec
    from petastore.work import Pool

__all__ = ["Execution", "Functions", "counts_of"]


@dataclasses.dataclass(frozen=True, eq=False)
class Functions:
    """Transform functions of a reader, and the pools that run these functions and all other tasks.

    Example:
        >>> functions = Functions.of([None], workers=Workers("dummy"), batched=False)
        >>> functions.are_called, functions.processes, functions.pool().workers
        (False, None, 0)
    """

    workers: Workers
    """Number and kind of workers, and memory limits."""

    batched: bool
    """Whether the reader yields batches instead of rows."""

    are_called: bool
    """Whether the reader calls any transform function."""

    processes: TransformProcesses | None
    """Worker processes of the functions; None if threads call them."""

    draw: bool = False
    """Whether any function takes a random generator."""

    @classmethod
    def of(cls, specs: Iterable[TransformSpec | None], *, workers: Workers, batched: bool) -> Self:
        """Return the functions of some transforms; processes are not started yet."""
        called = [spec for spec in specs if spec is not None and spec.func is not None]
        processes = None
        if called and workers.kind == "process":
            from petastore.transforming.processes import TransformProcesses  # imported here: few readers need it

            processes = TransformProcesses(workers.at_a_time)
        return cls(workers, batched, bool(called), processes, any(spec.rng is not None for spec in called))

    def transform(
        self, spec: TransformSpec | None, view: Unischema, source: Any, buffers: Buffers
    ) -> tuple[Unischema, Transform | None]:
        """Return the schema after a transform, and the function that transforms columns.

        Args:
            spec: Transform; None leaves columns unchanged.
            view: Schema before the transform.
            source: Dataset, for the time zones of its columns.
            buffers: Allocator of memory for results of worker processes.
        """
        if spec is None:
            return view, None
        # Lazy import: a reader without transform yields its first batch sooner.
        from petastore.transforming.captured_generators import warn_of_captured_generators
        from petastore.transforming.transform import takes_frames, transform_columns, transform_schema

        schema = transform_schema(view, spec)
        zones = source.time_zones if takes_frames(spec, batched=self.batched) else {}
        if spec.func is not None:
            warn_of_captured_generators(spec.func)
        if spec.func is None or self.processes is None:
            call = functools.partial(transform_columns, schema=schema, spec=spec, batched=self.batched, zones=zones)
            return schema, call
        return schema, self.processes.add(spec, schema, batched=self.batched, zones=zones, buffers=buffers)

    def pool(self) -> Pool:
        """Return an open pool for one iteration over the reader; the caller closes and joins it."""
        return self.workers.pool() if self.processes is None else self.processes.pool()

    def close(self) -> None:
        """Stop the worker processes. May be called again, by any thread."""
        if self.processes is not None:
            self.processes.close()

    def join(self) -> None:
        """After `close`, wait until all worker processes have ended. May be called again."""
        if self.processes is not None:
            self.processes.join()


@dataclasses.dataclass(frozen=True, eq=False)
class Execution:
    """Everything that a reader needs to run: datasets, plan, row-group loaders, batch assembler and workers.

    The reader owns the memory and processes of its execution, and releases them.
    """

    source: Readable
    """Dataset that is read, or several datasets as one."""

    plan: RankPlan
    """Plan: the rows of this rank, and their order."""

    loaders: tuple[RowGroupReader, ...]
    """Readers of row groups, one for each dataset."""

    memory: ReusableMemory
    """Memory of row groups and batches."""

    files_of_pass: Callable[[], OpenFiles]
    """Function that returns the pool of open files for a new iteration over the reader.

    All iterations share the record of row groups whose checksums were verified, so that a later iteration does not
    verify them again."""

    assembler: Assembles
    """Assembler of the batches of a span (consecutive batches that are prepared together)."""

    view: Unischema
    """Fields that are read, before the transform."""

    schema: Unischema
    """Output fields, after the transform."""

    layout: Layout
    """Memory layout of loaded row groups."""

    row_schema: Unischema
    """Output fields of single rows: `schema`; for windows, all fields of all offsets, after the transform."""

    footprint: Footprint
    """Memory size of rows, in row groups and in batches."""

    functions: Functions
    """Transform functions, and the threads or processes that call them."""

    hand_out: Callable[[AssembledSpan], Handout]
    """Function from an assembled span (consecutive batches) to an iterator of the rows, batches or windows that the
    user receives."""

    rows_per_item: int
    """Maximum number of rows in one item that the user receives; of windows, if the reader returns windows."""

    workers: Workers
    """Number and kind of workers, and memory limits."""

    batched: bool
    """Whether iteration yields batches of columns instead of rows."""

    transform: TransformSpec | None
    """Transform of all rows, with inferred `edit_fields` if the user passed none and the first row shows them. None
    without a transform, or if the sources of a mixture have different transforms."""

    extended: Extended | None = None
    """For windows, function that appends to a row group the following rows that its windows need; otherwise None."""

    ngram: NGram | None = None
    """Definition of the windows, with the fields of the dataset; None if the reader returns rows."""

    windows: Windows | None = None
    """Rows of each window; None if the reader returns rows."""

    provenance: bool = False
    """Whether the columns of `provenance=True` are added."""

    @property
    def stacked_columns(self) -> list[tuple[str, ...]]:
        """Names of columns that share one array if no value is missing: one tuple of names for each array."""
        layout, assembler = self.layout, self.assembler
        if not isinstance(assembler, Assembler) or assembler.transform is not None:
            return []
        return [tuple(name for number in kind for name in layout.stacks[number].names) for kind in layout.kinds]

    @once
    def in_parts(self) -> Execution:
        """This execution, changed to load huge row groups in parts; unchanged if that is impossible or not needed.

        Row groups are loaded in parts only with a memory budget, if rows are read in file order.
        """
        plan, assembler = self.plan, self.assembler
        limit = self.workers.memory_budget
        if limit is None or not isinstance(plan, Plan) or not isinstance(assembler, Assembler) or self.extended:
            return self
        from petastore.readers.loaded.part_loads import (  # imported here: only a memory budget needs it
            STREAMED_COLUMN_BYTES,
            page_bytes_of,
            parts_of,
            request_bytes,
        )

        parts = parts_of(plan, self.footprint, limit)
        if parts is None:
            return self
        page_bytes = page_bytes_of(self.source.datasets[0], plan, self.footprint, limit)
        plan = plan.in_parts(parts)
        of_column = STREAMED_COLUMN_BYTES
        if any(dataset.is_fetched for dataset in self.source.datasets):
            of_column += request_bytes(self.workers.most_copied_bytes, len(self.view.fields))
        footprint = dataclasses.replace(
            self.footprint,
            inventory=plan.inventory,
            parts=parts,
            streamed_column_bytes=of_column,
            page_bytes=page_bytes,
        )
        return dataclasses.replace(
            self, plan=plan, footprint=footprint, assembler=dataclasses.replace(assembler, parts=parts)
        )

    def refuse_what_cannot_be(self) -> None:
        """Raise an error if plan, schema and memory limits contradict each other.

        Raises:
            InvalidArgumentError: Values of a field are too large, or the schema already has the column `valid` of
                `last_batch="pad"`.
            NoDataAvailableError: There are fewer rows than ranks, with `last_batch="even"`.
        """
        refuse_large_fields(self.view, self.workers.max_cell_bytes)
        if self.plan.request.last_batch is LastBatch.PAD and VALID_COLUMN in self.schema:
            raise InvalidArgumentError(
                f"the name {VALID_COLUMN!r} must be free, because last_batch='pad' adds a column of this name, but the "
                "dataset has one. Leave that column out with schema_fields, or use another last_batch"
            )
        self.plan.steps_per_epoch(self.rows_per_item)

    def close(self) -> None:
        """Stop the transform processes. May be called again, by any thread."""
        self.functions.close()

    def join(self) -> None:
        """Free memory, close files, and wait until all worker processes have ended.

        Call `close` before. May be called again.
        """
        self.memory.close()
        for dataset in self.source.datasets:
            dataset.kept.close()
        self.functions.join()

    def __str__(self) -> str:
        request = self.plan.request
        what = "batches" if self.batched else "rows"
        return (
            f"{what} of {self.source.url}; shard {request.shard.index} of {request.shard.count}, "
            f"{self.plan.rows_per_epoch(self.rows_per_item):,} of {self.plan.num_rows:,} rows, "
            f"{len(request.columns)} columns, {request.epochs_in_words}, seed {request.order.seed}"
        )


_KEYS = {"again": "retries", "damaged": "corrupt"}
"""Names in `Reader.diagnostics` of counters that have another name in the code."""


def counts_of(datasets: Iterable[Dataset]) -> dict[str, int]:
    """Return the sums of the counters of several datasets, by name; a cache that datasets share is counted once.

    Requests are counted for remote files only; column chunks and footers are counted if there is a disk cache.
    """
    kept = list({id(dataset.kept): dataset for dataset in datasets}.values())
    requests = [dataset.kept.asked.counts._asdict() for dataset in kept if not dataset.location.is_local]
    caches = {id(dataset.kept.cache): dataset.kept.cache for dataset in kept}
    of_chunks = [dataclasses.asdict(cache.metrics) for cache in caches.values() if cache is not None]
    footers = {id(dataset.kept.footers): dataset.kept.footers for dataset in kept}
    of_footers = [_of_footers(cache.metrics) for cache in footers.values() if cache is not None]
    return {**_summed("storage", requests), **_summed("cache", of_chunks), **_summed("footer", of_footers)}


def _of_footers(metrics: CacheMetrics) -> dict[str, int]:
    return {"hits": metrics.hits, "misses": metrics.misses, "damaged": metrics.damaged}


def _summed(what: str, counted: Sequence[Mapping[str, int]]) -> dict[str, int]:
    names = counted[0] if counted else ()
    return {f"{what}_{_KEYS.get(name, name)}": sum(one[name] for one in counted) for name in names}
