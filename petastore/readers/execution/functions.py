"""Transform functions of a reader: run in threads or in worker processes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self

from petastore.decoding.buffers import Buffers
from petastore.schema.unischema import Unischema
from petastore.work.pools import Workers

if TYPE_CHECKING:
    from petastore.transforming.processes import TransformProcesses
    from petastore.transforming.transform import Transform, TransformSpec
    from petastore.work import Pool

__all__ = ["Functions"]


@dataclasses.dataclass(frozen=True, eq=False)
class Functions:
    """Transform functions of a reader, and the pools that run these functions and all other tasks.

    Example:
        >>> functions = Functions.of([None], workers=Workers("dummy"), batched=False)
        >>> functions.are_called, functions.processes, functions.pool().workers
        (False, None, 0)
    """

    workers: Workers
    """Worker pools."""

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
        are_called, draw = bool(called), any(spec.rng is not None for spec in called)
        if not are_called or workers.kind != "process":
            return cls(workers, batched, are_called, None, draw)
        from petastore.transforming.processes import TransformProcesses  # only needed for process pools
        from petastore.work.pools import available_cpus

        return cls(workers, batched, are_called, TransformProcesses(workers.count or available_cpus()), draw)

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
        """Return an open pool for one pass; the caller closes and joins it."""
        return self.workers.pool() if self.processes is None else self.processes.pool()

    def close(self) -> None:
        """Stop the worker processes. May be called again, by any thread."""
        if self.processes is not None:
            self.processes.close()

    def join(self) -> None:
        """After `close`, wait until all worker processes have ended. May be called again."""
        if self.processes is not None:
            self.processes.join()
