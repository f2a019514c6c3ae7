"""The reader: a plan, run."""

from __future__ import annotations

import contextlib
import functools
import warnings
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from petastore import forks
from petastore.decoding.buffers import Buffers
from petastore.decoding.cell_sizes import refuse_large_fields
from petastore.errors import DecodeError, ReaderClosedError, RequestError
from petastore.inventory import Inventory
from petastore.once import once
from petastore.plan.batches.budget import Budget, fitted
from petastore.plan.batches.kept import Kept
from petastore.plan.cursor import Cursor
from petastore.plan.mixture.mixture import Mixture
from petastore.plan.plan import Plan, Span
from petastore.plan.request import Shard, Tail
from petastore.plan.state import dump_state, resume
from petastore.plan.unit import ReadUnit
from petastore.plan.windows.ngram import NGram
from petastore.readers.assembly.assemble import VALID_COLUMN, AssembledSpan, Assembler, SpanWork
from petastore.readers.assembly.room import Room, begin_in_room
from petastore.readers.batch import Batch
from petastore.readers.handouts import Handout, batches_of, rows_of
from petastore.readers.loaded.arena import Arena
from petastore.readers.loaded.footprint import Footprint
from petastore.readers.loaded.layout import Layout
from petastore.readers.loaded.loader import RowGroupLoader
from petastore.readers.loaded.row_group import LoadedRowGroup
from petastore.readers.pipeline import Pipeline
from petastore.readers.shared import End, Shared
from petastore.schema.row import Row, row_type
from petastore.schema.unischema import Unischema
from petastore.storage.row_groups.asked_columns import Part
from petastore.storage.row_groups.open_files import OpenFiles
from petastore.storage.row_groups.verified import Verified
from petastore.transforming.processes import TransformProcesses
from petastore.transforming.transform import Transform, TransformSpec, takes_frames, transform_columns, transform_schema
from petastore.work.thread import available_cpus
from petastore.work.together import together
from petastore.work.workers import Workers

__all__ = ["Readable", "Reader"]

_LARGEST_BATCH = 65_536
"""Rows of the batches that a batched reader gives when nobody says how many."""

_CALLED_ROWS = 4096
"""Rows that are assembled in one go where Python runs for each of them: enough, even at a microsecond or two a row."""


class Readable(Protocol):
    """What a reader needs of a dataset: a `Dataset`, or several behind one."""

    @property
    def url(self) -> str:
        """Where it lies, for people."""

    @property
    def schema(self) -> Unischema:
        """What a row is."""

    @property
    def inventory(self) -> Inventory:
        """What exists; row groups are numbered as the plan numbers them."""

    def read_in_parts(self, unit: ReadUnit, parts: Sequence[Part], *, files: OpenFiles | None = None) -> Iterator[Any]:
        """The stored cells of a work item, some columns after the other: `pyarrow.Table`s with one chunk a column."""

    def read_together(self, units: Sequence[ReadUnit], parts: Sequence[Part]) -> Iterator[Any]:
        """Several small work items with one loader: of each part one table, with the rows of all."""

    def partition_values(self, columns: Sequence[str]) -> Mapping[str, Any]:
        """Of each partition column among some columns: its cell for each row group, as one `pyarrow.Array`."""


def _placed(task: Callable[[], None], unit: ReadUnit) -> None:
    """Runs a task that reads a row group; what it raises says of which file."""
    try:
        task()
    except DecodeError as problem:
        raise problem.at(file=unit.file.path, row_group=unit.row_group) from problem.__cause__


class Reader:
    """Runs a plan: iterates rows, or batches of columns.

    A reader is its own iterator, over all epochs of the plan. `batches(n)` gives batches of n rows instead; adapters
    use only that. Reading begins with the first `next`; nothing runs before.

    Several threads may iterate one reader, or one iterator of `batches`: each row goes to exactly one of them, and a
    thread whose loop begins when the others have taken all rows gets none. `stop` may be called from any thread. In a
    forked child the pass under way is over: `reset`, or open another reader.

    Args:
        dataset: Where the plan's row groups are.
        plan: What is read, in what order.
        workers: Who does the work; the order does not depend on it.
        transform: A function for rows, or for DataFrames where `batched`.
        batched: Whether iteration gives column batches, or else rows.

    Raises:
        RequestError: The transform, or the column `valid` of `tail="pad"`, contradicts the schema; or values of a field
            are larger than `Workers.max_cell_bytes`.
        NoDataAvailableError: `tail="even"` with fewer rows than shards.
    """

    ngram: NGram | None = None
    """What a window is, where rows of this reader are windows."""

    def __init__(
        self,
        dataset: Readable,
        plan: Plan | Mixture,
        *,
        workers: Workers,
        transform: TransformSpec | None = None,
        batched: bool = False,
    ) -> None:
        self._pipeline: Pipeline | None = None
        self._arena_of_last_pass: Arena | None = None
        self._beginning = forks.Lock()  # of a loop: several threads may begin theirs at once
        self._handout: Handout | None = None  # the last one, whoever asked for it
        self._end: End | None = None  # of the reader's own pass, for those who iterate the reader
        self._begin = Cursor()
        self._received: tuple[Span, int] | None = None
        self.workers = workers
        """Who does the work."""
        self.transform = transform
        """The function that makes rows of what is stored; None leaves them as they are."""
        self.dataset = dataset
        """The dataset that is read."""
        self.plan = plan
        """What is read, by whom and in what order."""
        self.batched_output = batched
        """Whether iteration gives column batches, or else rows."""
        self.last_row_consumed = False
        """Whether iteration has come to the end of the last epoch."""
        self.stopped = False
        """Whether `stop` was called."""
        self._buffers = Buffers()
        self._processes: TransformProcesses | None = None
        self._calls_functions = False
        self._verified = Verified()
        self._assembler = self._make_assembler()
        if self._processes is None:
            workers.say_that_threads_will_do()
        self._loader_of = self._make_loaders()
        self._view = self._assembler.view
        refuse_large_fields(self._view, workers.max_cell_bytes)
        self.schema = self._assembler.schema
        """What comes out: the fields after selection and transform."""
        if plan.request.tail is Tail.PAD and VALID_COLUMN in self.schema:
            raise RequestError(
                f"tail='pad' adds a column {VALID_COLUMN!r}, but the dataset has one already; leave it out by "
                "schema_fields, or use another tail"
            )
        plan.steps_per_epoch(self._own_batch_size)  # refuses what cannot be shared, at the call
        self._own_pass = self._new_pass()
        self._asked_for: Callable[[], Shared[Batch] | None] = lambda: None

    def _make_assembler(self) -> Assembler:
        schema, columns = self.dataset.schema, self.plan.request.columns
        view = Unischema(f"{schema.name}_view", [schema[name] for name in columns])
        partition_values = self.dataset.partition_values(columns)
        return Assembler(
            inventory=self.dataset.inventory,
            view=view,
            schema=view if self.transform is None else transform_schema(view, self.transform),
            partition_values=partition_values,
            transform=self._transform_of(view, self.transform, self.dataset),
            layout=Layout.of(view, rows=self._rows_per_group, apart=set(partition_values)),
            buffers=self._buffers,
            max_cell_bytes=self.workers.max_cell_bytes,
        )

    def _transform_of(self, view: Unischema, spec: TransformSpec | None, dataset: Any) -> Transform | None:
        """What does to columns what the user asked for; `view` is the schema of the dataset before it."""
        if spec is None:
            return None
        schema = transform_schema(view, spec)
        self._calls_functions |= spec.func is not None
        zones = dataset.time_zones if takes_frames(spec, batched=self.batched_output) else {}
        if spec.func is None or self.workers.kind != "process":
            return functools.partial(
                transform_columns, schema=schema, spec=spec, batched=self.batched_output, zones=zones
            )
        self._processes = self._processes or TransformProcesses(self.workers.count or available_cpus())
        return self._processes.add(spec, schema, batched=self.batched_output, zones=zones, buffers=self._buffers)

    def _open_files(self) -> OpenFiles:
        """What keeps files open during a pass."""
        return OpenFiles(verified=self._verified)

    def _make_loaders(self) -> Callable[[int], RowGroupLoader]:
        """Who takes in a row group, given its number."""
        assembler = self._assembler
        stored = {field.name: field for field in assembler.view if field.name not in assembler.partition_values}
        most = self.workers.most_copied_bytes
        loader = RowGroupLoader(assembler.layout, stored, self._buffers, most_bytes=most)
        return lambda _group: loader

    @once
    def _rows_per_group(self) -> int:
        """Rows of the largest row group."""
        return int(self.plan.inventory.rows.max(initial=1))

    @property
    def num_epochs(self) -> int | None:
        """Epochs of one iteration; None is without end."""
        return self.plan.request.epochs

    @property
    def is_batched_reader(self) -> bool:
        """`batched_output`, by its other name in Petastorm."""
        return self.batched_output

    @property
    def shard(self) -> Shard:
        """Which part of the dataset this reader gives."""
        return self.plan.request.shard

    @property
    def cursor(self) -> Cursor:
        """Where the reader stands: after the last row or batch that it gave; the same on every rank."""
        self._note_received()
        if self._received is None:
            return self._begin
        span, place = self._received
        return span.cursor_after(place)

    @property
    def num_rows(self) -> int:
        """Rows of an epoch of this reader, known before the first read."""
        return self.plan.rows_per_epoch(self._own_batch_size)

    def steps_per_epoch(self, batch_size: int) -> int:
        """Batches of an epoch: the same on every rank, known before the first read."""
        return self.plan.steps_per_epoch(batch_size)

    def __len__(self) -> int:
        """What one iteration gives: rows, or batches of a batched reader.

        Raises:
            TypeError: The reader is endless.
        """
        if self.num_epochs is None:
            raise TypeError(
                "a reader with num_epochs=None is endless; steps_per_epoch(batch_size) says what an epoch is"
            )
        each = self.steps_per_epoch(self._own_batch_size) if self.batched_output else self.num_rows
        return each * self.num_epochs

    def __bool__(self) -> bool:
        return True  # a reader without rows is a reader all the same

    @property
    def rows_per_batch(self) -> int:
        """Rows of what one `next` gives: 1, or in a batched reader those of the largest row group, at most 65,536."""
        return self._own_batch_size

    @once
    def _own_batch_size(self) -> int:
        """Rows that iteration takes at a time: 1 for rows; for batches a row group of the largest size."""
        if not self.batched_output:
            return 1
        return max(min(self._rows_per_group, _LARGEST_BATCH), 1)

    def batches(self, batch_size: int) -> Iterator[Batch]:
        """Batches of this many rows, from where the reader stands, through all remaining epochs.

        Leaving early is fine: `reset()` and ask again.

        Args:
            batch_size: Rows of a batch; the last one of an epoch depends on `tail`.

        Raises:
            ReaderClosedError: After `stop`.
            RequestError: `batch_size` is not a whole number above 0, or `memory_budget` is less than such batches need.
            NoDataAvailableError: `tail="even"` with fewer rows than shards.
            DecodeError: A cell is not what its field declares.
            TransformError: From the user's function.
        """
        self.plan.steps_per_epoch(batch_size)
        self._pace(batch_size)
        self._note_received()
        self._own_pass = self._new_pass()  # rows that are asked for later follow these batches
        batches: Shared[Batch] = Shared(self._handouts(batch_size, batches_of))
        self._asked_for = weakref.ref(batches)  # who forgets them ends them
        return batches

    def _handouts(self, batch_size: int, of_span: Callable[[AssembledSpan], Handout]) -> Generator[Handout]:
        """What is handed out of span after span; the reader stands behind what was taken of the last one."""
        for span in self._spans(batch_size):
            self._note_received()
            self._handout = of_span(span)
            del span  # the consumer's now
            yield self._handout
        self._let_go_of_handout()

    def _let_go_of_handout(self) -> None:
        self._note_received()
        self._handout = None

    def _spans(self, batch_size: int) -> Generator[AssembledSpan]:
        """Assembled spans from the cursor on; the pipeline ends with the last one, or when the caller leaves."""
        if self.stopped:
            raise ReaderClosedError("this reader was stopped; open another one")
        self._end_pipeline()
        pool = self.workers.pool() if self._processes is None else self._processes.pool()
        # Tasks hold what they need and not the reader: a worker must never be the last one to hold it, and so end it.
        dataset, plan, loader_of = self.dataset, self.plan, self._loader_of

        files, arena = self._open_files(), self._arena
        # Before what waits: somebody is waiting for the rest of a row group that was begun.
        submit = functools.partial(pool.submit, priority=-1)

        def fetched(group: int, read_order: NDArray[np.int64] | None) -> LoadedRowGroup | Future[LoadedRowGroup]:
            unit = plan.unit(group)
            read = functools.partial(dataset.read_in_parts, unit, files=files)
            loading = loader_of(group).loading(unit.rows[1], read_order, read, arena, most=pool.workers)
            tasks = [functools.partial(_placed, task, unit) for task in loading.tasks]
            if len(tasks) == 1:
                tasks[0]()
                return loading.finish()
            made = together(tasks, loading.finish, submit)
            return made.result() if made.done() else made

        def fetched_together(asked: Sequence[tuple[int, NDArray[np.int64] | None]]) -> list[LoadedRowGroup] | None:
            groups = [group for group, _ in asked]
            loader = loader_of(groups[0])
            is_plain = type(loader) is RowGroupLoader and all(loader_of(group) is loader for group in groups)
            if arena is not None or not is_plain or any(read_order is not None for _, read_order in asked):
                return None
            units = [plan.unit(group) for group in groups]
            read = functools.partial(dataset.read_together, units)
            return loader.load_together([unit.rows[1] for unit in units], read)

        rows_per_span, ahead = self._pace(batch_size)
        pipeline = Pipeline(
            plan.spans(batch_size, rows_per_span=rows_per_span, after=self.cursor),
            fetch=fetched,
            begin=self._begin_of(batch_size),
            pool=pool,
            ahead=ahead,
            # Row groups that were fetched together are in memory until the last of them is not needed any more.
            sizes=plan.inventory.decoded_bytes if self.workers.memory_budget is None else None,
            fetch_together=fetched_together,
        )
        self._pipeline = pipeline
        if self.stopped:  # meanwhile: `stop` saw no pipeline that it could close
            pipeline.close()
        try:
            yield from pipeline
            pipeline.join()
            self.last_row_consumed = True
        except GeneratorExit:
            pipeline.close()
            pipeline.join()
            raise
        finally:
            # Who is woken by `stop` waits for no task that still runs; `join` does.
            pipeline.close()
            files.close()

    def _begin_of(self, batch_size: int) -> Callable[[Span, Mapping[int, LoadedRowGroup]], SpanWork]:
        """What divides the assembly of a span into tasks."""
        limit = self.workers.memory_budget
        if limit is None:
            return self._assembler.begin
        free, workers = self._footprint.free_row_bytes, self.workers.at_a_time
        room = Room.of(self.budget(batch_size), limit=limit, free_row_bytes=free, workers=workers)
        return functools.partial(begin_in_room, self._assembler, room)

    def budget(self, batch_size: int) -> Budget:
        """What reading batches of this size takes in memory at most, and how far ahead the reader works; print it.

        Row groups at hand are those of the first epoch, to the position; the order of another may keep a little more.
        The batches that the caller keeps are not counted, but for the last two.

        Raises:
            RequestError: `memory_budget` is less than batches of this size need.
        """
        footprint = self._footprint
        ranks = self.shard.count
        return fitted(
            footprint.needs,
            lambda early: self.plan.at_hand_bytes(footprint.group_bytes, early=early * ranks),
            batch_size=batch_size,
            rows_per_span=max(self._rows_per_span, batch_size),
            workers=self.workers.at_a_time,
            limit=self.workers.memory_budget,
            kept=self._kept,
        )

    @property
    def _kept(self) -> Kept:
        """Why row groups are at hand."""
        sources = self.plan.sources if isinstance(self.plan, Mixture) else (self.plan,)
        orders = [source.request.order for source in sources]
        return Kept(
            largest_group_bytes=int(self._footprint.group_bytes.max(initial=0)),
            shuffles_rows=any(order.shuffle_rows for order in orders),
            lanes=max(-(-order.lanes // self.shard.count) for order in orders),
            sources=len(sources),
            is_of_windows=self.ngram is not None,
        )

    @property
    def stacked_columns(self) -> list[tuple[str, ...]]:
        """Names of columns that `Batch.source` has in one array too, where none of their values is missing."""
        if self.transform is not None or self.ngram is not None:
            return []
        layout = self._assembler.layout
        return [tuple(name for number in kind for name in layout.stacks[number].names) for kind in layout.kinds]

    @property
    def _arena(self) -> Arena | None:
        """Where row groups at hand stand together; None where they are arrays of their own."""
        rows = self.plan.room_rows
        if self._arena_of_last_pass is None or self._arena_of_last_pass.rows < rows:
            with contextlib.suppress(OSError):  # so many addresses are not to be had
                self._arena_of_last_pass = Arena(self._assembler.layout, rows, self._buffers) if rows else None
        return self._arena_of_last_pass if rows else None

    @once
    def _footprint(self) -> Footprint:
        return Footprint(self._view, self.dataset.schema, self._assembler.layout, self.plan.inventory)

    def _pace(self, batch_size: int) -> tuple[int, int]:
        """Rows that are assembled in one go, and spans that are worked on at a time."""
        if self.workers.memory_budget is not None:
            budget = self.budget(batch_size)
            self._buffers.limit = budget.at_hand_bytes + budget.batch_bytes
            return budget.rows_per_span, budget.ahead
        return self._rows_per_span, self.workers.at_a_time + 1

    @property
    def _rows_per_span(self) -> int:
        """Rows that are best assembled in one go, where no budget says otherwise."""
        is_bounded = self.workers.memory_budget is not None
        rows = self._footprint.rows_per_span(self.workers.at_a_time + 1, is_bounded=is_bounded)
        return min(rows, _CALLED_ROWS) if self._calls_functions else rows

    def __iter__(self) -> Self:
        """The reader itself: a loop goes on where the last one left; after the end, the next one begins again."""
        with self._beginning:
            if self.last_row_consumed and not self.stopped and not (self._end is not None and self._end.is_news):
                self.reset()
        return self

    def __next__(self) -> Row:
        """The next row as a named tuple, or the next batch as a named tuple of columns.

        Raises:
            StopIteration: All epochs are done.
            ReaderClosedError: After `stop`.
        """
        item: Row
        for item in self._own_pass.at_hand:  # an iterator written in C, which threads may enter at any time
            return item
        try:
            return self._own_pass.next_of_next()
        except StopIteration:
            self._end = self._end or End()
            self._end.tell()
            raise

    def next(self) -> Row:
        """`next(reader)`, as Petastorm spells it."""
        return next(self)

    @once
    def _row_type(self) -> Any:
        names = tuple(self.schema.fields) + ((VALID_COLUMN,) if self.plan.request.tail is Tail.PAD else ())
        return row_type(self.schema.name if self.schema.name.isidentifier() else "Row", names)

    def _new_pass(self) -> Shared[Any]:
        """What iterating the reader goes through, from where the reader stands then."""
        of_span = self._batches_handed_out if self.batched_output else self._rows_handed_out
        return Shared(self._handouts(self._own_batch_size, of_span))

    def _batches_handed_out(self, span: AssembledSpan) -> Handout:
        return batches_of(span, lambda batch: self._row_type._make(batch.values()))

    def _rows_handed_out(self, span: AssembledSpan) -> Handout:
        return rows_of(span, self._row_type)

    def _note_received(self) -> None:
        """Notes which item was the last one taken: that is not done for each of them."""
        if self._handout is not None:
            self._received = self._handout.received or self._received

    def reset(self) -> None:
        """Begins a new pass before the first row, at any time.

        Epochs count on through passes, so that a shuffled pass has another order than the one before; to see the same
        order again, `load_state_dict` a state that was taken before the first row.

        Raises:
            ReaderClosedError: After `stop`.
        """
        self._go_on(self.plan, self.cursor.next_pass())

    def state_dict(self) -> dict[str, Any]:
        """Where the reader stands, as a new dict of JSON values under 300 bytes; the same on every rank.

        It counts what was given out, not what was prefetched.
        """
        return dump_state(self.plan, self.cursor)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where `state_dict` was called: the next row or batch is the one that would have followed.

        Workers, pool, batch size, tail, number of ranks and epochs may be others than then: the rows that were not
        given out yet follow, none twice.

        Raises:
            RequestError: The state is none, or of another dataset or order; the difference is named.
            ReaderClosedError: After `stop`.
        """
        self._go_on(*resume(self.plan, state))

    def reshard(self, cur_shard: int, shard_count: int) -> None:
        """Goes on as another rank, or as one of another number of ranks; every rank calls it after the same step.

        Nothing is communicated: after the same steps all ranks stand at the same place, and share what is left anew.

        Raises:
            RequestError: There is no such shard.
            ReaderClosedError: After `stop`.
        """
        self._go_on(self.plan.for_shard(Shard(cur_shard, shard_count)), self.cursor)

    def _go_on(self, plan: Plan | Mixture, cursor: Cursor) -> None:
        if self.stopped:
            raise ReaderClosedError("this reader was stopped; open another one")
        self._end_pipeline()
        self._own_pass = self._new_pass()
        self.plan = plan
        self._begin = cursor
        self._received = self._handout = self._end = None
        self.last_row_consumed = False

    def _end_pipeline(self) -> None:
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            pipeline.close()
            pipeline.join()

    def stop(self) -> None:
        """Ends reading; whoever waits in `next` wakes with `ReaderClosedError`. May be called again, by any thread."""
        self.stopped = True
        for under_way in (self._own_pass, self._asked_for()):
            if under_way is not None:
                under_way.end("this reader was stopped; open another one")
        if self._pipeline is not None:
            self._pipeline.close()
        if self._processes is not None:
            self._processes.close()

    def join(self) -> None:
        """Waits until no worker runs any more, after `stop`; gives memory back. May be called again."""
        try:
            self._end_pipeline()
        finally:  # also where a thread had to be left behind, and a warning of it is an error
            if self.stopped:
                self._let_go_of_handout()
                self._arena_of_last_pass = None
                self._buffers.close()
                if self._processes is not None:
                    self._processes.join()

    def cleanup_cache(self) -> None:
        """Does nothing: what other readers may use is not removed when one of them ends."""

    @property
    def diagnostics(self) -> dict[str, Any]:
        """Whether reading keeps up, as a new dict of JSON values, at any time and from any thread.

        `waited_s` is for how many seconds this pass has waited for rows: near 0 where reading is ahead of training.
        `workers` is how many tasks run at a time.
        """
        pipeline = self._pipeline
        return {
            "waited_s": 0.0 if pipeline is None else pipeline.waited_s,
            "workers": self.workers.at_a_time,
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self.join()

    def __del__(self) -> None:
        pipeline = getattr(self, "_pipeline", None)
        if pipeline is not None and not pipeline.is_closed:
            pipeline.close()
            warnings.warn(
                f"{self!r} was not stopped; use it in a `with` block", ResourceWarning, stacklevel=1, source=self
            )

    def __repr__(self) -> str:
        request = self.plan.request
        what = "batches" if self.batched_output else "rows"
        epochs = (
            "endless" if request.epochs is None else f"{request.epochs:,} epoch{'' if request.epochs == 1 else 's'}"
        )
        return (
            f"Reader({what} of {self.dataset.url}; shard {request.shard.index} of {request.shard.count}, "
            f"{self.num_rows:,} of {self.plan.num_rows:,} rows, {len(request.columns)} columns, {epochs}, "
            f"seed {request.order.seed})"
        )
