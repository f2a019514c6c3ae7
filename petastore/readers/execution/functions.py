"""The functions of a reader's transforms: who calls them, in threads or in processes of their own."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self

from petastore.decoding.buffers import Buffers
from petastore.schema.unischema import Unischema
from petastore.work.workers import Workers

if TYPE_CHECKING:
    from petastore.transforming.processes import TransformProcesses
    from petastore.transforming.transform import Transform, TransformSpec
    from petastore.work import Pool

__all__ = ["Functions"]


@dataclasses.dataclass(frozen=True, eq=False)
class Functions:
    """Who calls the functions of transforms, and who does all other work.

    Example:
        >>> functions = Functions.of([None], workers=Workers("dummy"), batched=False)
        >>> functions.are_called, functions.processes, functions.pool().workers
        (False, None, 0)
    """

    workers: Workers
    """Who does the work."""

    batched: bool
    """Whether the reader gives batches, or else rows."""

    are_called: bool
    """Whether there is any function."""

    processes: TransformProcesses | None
    """The processes in which they run; None where threads call them."""

    draw: bool = False
    """Whether any of them draws random numbers from generators that it is given."""

    @classmethod
    def of(cls, specs: Iterable[TransformSpec | None], *, workers: Workers, batched: bool) -> Self:
        """Those of some transforms; processes are not started yet."""
        called = [spec for spec in specs if spec is not None and spec.func is not None]
        are_called, draw = bool(called), any(spec.rng is not None for spec in called)
        if not are_called or workers.kind != "process":
            workers.say_that_threads_will_do()
            return cls(workers, batched, are_called, None, draw)
        from petastore.transforming.processes import TransformProcesses  # with all that a process is started by
        from petastore.work.thread import available_cpus

        return cls(workers, batched, are_called, TransformProcesses(workers.count or available_cpus()), draw)

    def transform(
        self, spec: TransformSpec | None, view: Unischema, source: Any, buffers: Buffers
    ) -> tuple[Unischema, Transform | None]:
        """The schema after a transform, and what does to columns what the user asked for.

        Args:
            spec: The transform; None leaves columns as they are.
            view: The schema before it.
            source: The dataset, which knows the time zones of its columns.
            buffers: Where the memory of what processes make comes from.
        """
        if spec is None:
            return view, None
        # Imported where there is something to transform: a first batch of what is stored comes sooner.
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
        """The pool of one pass, open; whoever asks for it closes and joins it."""
        return self.workers.pool() if self.processes is None else self.processes.pool()

    def close(self) -> None:
        """Has processes end. May be called again, by any thread."""
        if self.processes is not None:
            self.processes.close()

    def join(self) -> None:
        """Waits until no process runs, after `close`. May be called again."""
        if self.processes is not None:
            self.processes.join()
