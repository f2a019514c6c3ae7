"""Throughput of a reader with one setting: `reader_throughput` and its result.

`petastore throughput` uses this function.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import multiprocessing
import os
import resource
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from petastore.errors import InvalidArgumentError, NoDataAvailableError
from petastore.front import make_reader
from petastore.plan.request import known_word, whole_number
from petastore.readers.batch import Batch
from petastore.work.pools import PoolType

if TYPE_CHECKING:
    from petastore.codecs import ImageDecode
    from petastore.dataset import Dataset
    from petastore.monitoring.diagnosis import Diagnosis
    from petastore.readers.options import PassedKwargs
    from petastore.readers.reader import Reader
    from petastore.transforming.transform import TransformSpec

__all__ = ["Memory", "Throughput", "ignore_progress", "reader_throughput"]

_PARTS = 20

_ROWS_AT_ONCE = 256
"""Single rows that are read before the time is checked."""


@dataclasses.dataclass(frozen=True, slots=True)
class Memory:
    """Memory of the measuring process."""

    rss: int
    """Peak resident memory in bytes."""


@dataclasses.dataclass(frozen=True, slots=True)
class Throughput:
    """The result of a throughput measurement."""

    rows: int
    """Rows read during the measurement."""

    seconds: float
    """Duration of the measurement."""

    median: float
    """Median of the rows per second in about 20 parts of the measurement.

    Parts vary more than whole measurements, because readers prefetch and produce many rows at a time.
    """

    slowest: float
    """Rows per second in the slowest part."""

    fastest: float
    """Rows per second in the fastest part."""

    bytes_per_row: float
    """Mean bytes per row (arrays, text and bytes), in a sample of the warm-up rows."""

    cpu: float
    """CPU time of this process divided by wall time, in percent: 200 means two busy CPUs."""

    first_seconds: float
    """Seconds from opening the dataset to the first row or batch."""

    memory_info: Memory
    """Peak memory of the measuring process."""

    diagnosis: Diagnosis
    """How long reading waited for each stage, from the first batch on."""

    @property
    def rows_per_second(self) -> float:
        """Rows divided by seconds, over the whole measurement."""
        return self.rows / self.seconds

    @property
    def samples_per_second(self) -> float:
        """Same as `rows_per_second`, under Petastorm's name."""
        return self.rows_per_second

    @property
    def time_mean(self) -> float:
        """Seconds per row, over the whole measurement."""
        return self.seconds / self.rows

    @property
    def bytes_per_second(self) -> float:
        """Bytes of arrays, text and bytes per second, over the whole measurement."""
        return self.rows_per_second * self.bytes_per_row

    def as_json(self) -> dict[str, float]:
        """Return the result as a dict of JSON values.

        The names end with their units.

        `rows_per_second` refers to the whole measurement; names with `slowest_`, `median_` or `fastest_` refer to that
        part.
        """
        return {
            "rows": self.rows,
            "seconds": self.seconds,
            "rows_per_second": self.rows_per_second,
            "slowest_rows_per_second": self.slowest,
            "median_rows_per_second": self.median,
            "fastest_rows_per_second": self.fastest,
            "bytes_per_row": self.bytes_per_row,
            "bytes_per_second": self.bytes_per_second,
            "first_seconds": self.first_seconds,
            "cpu_percent": self.cpu,
            "peak_memory_bytes": self.memory_info.rss,
        }


def reader_throughput(
    dataset_url: str | os.PathLike[str] | Dataset,
    field_regex: Iterable[str] | None = None,
    warmup_cycles_count: int = 300,
    measure_cycles_count: int = 1000,
    pool_type: PoolType | Any = "thread",
    loaders_count: int | None = None,
    profile_threads: bool = False,
    read_method: Any = "python",
    shuffling_queue_size: int | None = None,  # noqa: ARG001 - a parameter of Petastorm, for TensorFlow queues
    min_after_dequeue: int | None = None,  # noqa: ARG001 - a parameter of Petastorm, for TensorFlow queues
    reader_extra_args: PassedKwargs | None = None,
    spawn_new_process: bool = True,
    *,
    batch_size: int | None = None,
    seconds: float = 0,
    max_seconds: float = math.inf,
    decode: Mapping[str, ImageDecode] | None = None,
    transform_spec: TransformSpec | None = None,
    progress: Callable[[int, int], object] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Throughput:
    """Measure how fast a dataset is read, in rows per second.

    Parameters are in the order of Petastorm's function. The function reads like a training run, with the same order and
    workers, epoch after epoch, and discards the rows. A second measurement reads local files from the page cache, so it
    measures only decoding.

    Args:
        dataset_url: Local path or URL of the dataset, or an open `Dataset`.
        field_regex: Names, or regular expressions over whole names; None selects all fields.
        warmup_cycles_count: Rows to read before the measurement.
        measure_cycles_count: Rows to measure, rounded up to whole batches. Readers prefetch, so use many more rows than
            a few row groups have.
        pool_type: `"thread"`, `"process"` or `"dummy"`, as `reader_pool_type` of `make_reader`.
        loaders_count: Workers; None means one per CPU that the process may use.
        profile_threads: No effect; a profiler such as py-spy sees all threads.
        read_method: Must be `"python"`. Measure TensorFlow and PyTorch programs with their own profilers.
        shuffling_queue_size: No effect.
        min_after_dequeue: No effect.
        reader_extra_args: More arguments of `make_reader`.
        spawn_new_process: Whether to measure in a new process, whose memory contains only the reader. The calling
            script then needs `if __name__ == "__main__":`.
        batch_size: Rows per batch, as loaders read them; None reads row by row.
        seconds: Minimum duration of the measurement, for any number of rows.
        max_seconds: Maximum duration of opening, warm-up and measurement, checked after each batch. If the warm-up
            takes longer, the result is about all rows read so far, including the opening.
        decode: Options for decoding images, as in `make_reader`.
        transform_spec: A transform, as in `make_reader`; must be picklable for a new process.
        progress: Function that is called at most about 40 times, while the clock is stopped, with the number of rows
            read so far and the total number. With `seconds`, the total is an estimate.
        clock: Function that returns seconds; must be picklable for a new process.

    Returns:
        The result.

    Raises:
        InvalidArgumentError: An argument is invalid; the message names it.
        NoDataAvailableError: The dataset has no rows.
        DatasetNotFoundError: No dataset exists at the URL.

    Example:
        >>> import tempfile, petastore
        >>> schema = petastore.Unischema("user", [petastore.UnischemaField("id", "int64")])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = petastore.write_dataset(folder + "/users", schema, [{"id": number} for number in range(100)])
        ...     found = reader_throughput(folder + "/users", batch_size=10, spawn_new_process=False)
        >>> found.rows, found.bytes_per_row, found.slowest <= found.median <= found.fastest
        (1000, 8.0, True)
    """
    del profile_threads
    if str(read_method) != "python":
        raise InvalidArgumentError(
            f"read_method must be 'python', got {str(read_method)!r}. Pass batch_size to measure batches as adapters "
            "read them"
        )
    arguments: PassedKwargs = {**(reader_extra_args or {})}
    if decode is not None:
        arguments["decode"] = decode
    if transform_spec is not None:
        arguments["transform_spec"] = transform_spec
    if field_regex is not None:
        arguments.setdefault("schema_fields", [field_regex] if isinstance(field_regex, str) else list(field_regex))
    asked = _Asked(
        dataset_url=os.fspath(dataset_url) if isinstance(dataset_url, os.PathLike) else dataset_url,
        warmup=whole_number(warmup_cycles_count, name="warmup_cycles_count", least=0),
        measure=whole_number(measure_cycles_count, name="measure_cycles_count", least=1),
        seconds=float(seconds),
        max_seconds=float(max_seconds),
        batch_size=None if batch_size is None else whole_number(batch_size, name="batch_size", least=1),
        arguments={
            **arguments,
            "num_epochs": None,
            "reader_pool_type": known_word(str(pool_type), PoolType, name="reader_pool_type"),
            "workers_count": loaders_count,
        },
        clock=clock,
    )
    if not spawn_new_process:
        return _measured(asked, progress or ignore_progress)
    return _measured_in_a_new_process(asked, progress or ignore_progress)


@dataclasses.dataclass(frozen=True, slots=True)
class _Asked:
    dataset_url: str | Dataset
    warmup: int
    measure: int
    seconds: float
    max_seconds: float
    batch_size: int | None
    arguments: PassedKwargs
    clock: Callable[[], float]


_Progress = Callable[[int, int], object]
_parent: Connection | None = None
"""Connection to the parent process for progress reports; None except in a process that was started to measure."""


def _measured_in_a_new_process(asked: _Asked, progress: _Progress) -> Throughput:
    spawn = multiprocessing.get_context("spawn")
    told, telling = spawn.Pipe(duplex=False)
    with told, ProcessPoolExecutor(1, mp_context=spawn, initializer=_tell_to, initargs=(telling,)) as processes:
        with telling:  # only the new process holds the pipe, so the pipe ends when that process exits
            found = processes.submit(_measured_and_told, asked)
        with contextlib.suppress(EOFError):
            while True:
                progress(*told.recv())
        return found.result()


def _tell_to(telling: Connection) -> None:
    global _parent
    _parent = telling


def _measured_and_told(asked: _Asked) -> Throughput:
    assert _parent is not None  # noqa: S101 - `_tell_to` ran before
    with _parent as telling:
        return _measured(asked, lambda *counts: telling.send(counts))


def _measured(asked: _Asked, tell: _Progress) -> Throughput:
    clock = asked.clock
    total = asked.warmup + asked.measure
    began, cpu_began = clock(), time.process_time()

    def is_over() -> bool:
        return asked.max_seconds < math.inf and clock() - began >= asked.max_seconds

    with make_reader(asked.dataset_url, **asked.arguments) as reader:
        if not reader.num_rows:
            raise NoDataAvailableError(
                f"the dataset must have rows to measure, got no rows in {reader.dataset.url}. Check the URL and the "
                "filters"
            )
        read = _rows(reader, is_over) if asked.batch_size is None else _batches(reader, asked.batch_size, is_over)
        _, sample = read(1)
        first_seconds = clock() - began
        rows = sum(_rows_in(value) for value in sample)
        sizes, counted = _bytes_in(sample), rows
        while rows < asked.warmup and not is_over():
            more, values = read(max(1, min(asked.warmup - rows, asked.warmup // _PARTS)))
            rows += more
            sizes, counted = sizes + _bytes_in(values), counted + sum(_rows_in(value) for value in values)
            tell(min(rows, total), total)
        if is_over():
            parts, cpu = [(rows, clock() - began)], time.process_time() - cpu_began
        else:
            parts, cpu = _parts(
                read,
                asked.measure,
                asked.seconds,
                lambda done: tell(asked.warmup + int(done * asked.measure), total),
                clock,
                is_over,
            )
        diagnosis = reader.diagnosis()
    rates = [of_part / max(took, 1e-9) for of_part, took in parts]
    seconds = max(sum(took for _, took in parts), 1e-9)
    return Throughput(
        rows=sum(of_part for of_part, _ in parts),
        seconds=seconds,
        median=statistics.median(rates),
        slowest=min(rates),
        fastest=max(rates),
        bytes_per_row=sizes / counted,
        cpu=100 * cpu / seconds,
        first_seconds=first_seconds,
        memory_info=Memory(_peak_bytes()),
        diagnosis=diagnosis,
    )


_Read = Callable[[int], tuple[int, list[Any]]]


def _rows(reader: Reader, is_over: Callable[[], bool]) -> _Read:
    """Return a function that reads a number of single rows.

    It returns the number of rows read, and a list with the last row. When the time is over, it stops early.
    """
    rows = iter(reader)

    def read(count: int) -> tuple[int, list[Any]]:
        done, last = 0, deque[Any](maxlen=1)
        while done < count and not (done and is_over()):
            part = min(count - done, _ROWS_AT_ONCE)
            last.extend(itertools.islice(rows, part))
            done += part
        return done, list(last)

    return read


def _batches(reader: Reader, batch_size: int, is_over: Callable[[], bool]) -> _Read:
    """Return a function that reads batches.

    It reads at least the requested number of rows, and returns the number of rows read and a list with the last batch.
    When the time is over, it stops early.
    """
    batches = reader.iter_batches(batch_size)

    def read(count: int) -> tuple[int, list[Any]]:
        done, batch = 0, None
        while done < count and not (done and is_over()):
            batch = next(batches)
            done += batch.num_rows
        return done, [batch]

    return read


def _parts(
    read: _Read,
    measure: int,
    seconds: float,
    tell: Callable[[float], object],
    clock: Callable[[], float],
    is_over: Callable[[], bool],
) -> tuple[list[tuple[int, float]], float]:
    """Measure the throughput in about 20 parts.

    Args:
        read: Function that reads a number of rows.
        measure: Minimum number of rows to measure.
        seconds: Minimum duration of the measurement.
        tell: Function that is called after each part with the progress, from 0 to 1: that of the rows or of the time,
            whichever is less.
        clock: Function that returns seconds.
        is_over: Function that returns whether the maximum duration is over.

    Returns:
        List of (rows, seconds) for each part, and the CPU seconds of all parts together.
    """
    parts: list[tuple[int, float]] = []
    done, spent, cpu = 0, 0.0, 0.0
    share = -(-measure // _PARTS)
    while not parts or ((done < measure or spent < seconds) and not is_over()):
        rows, took, cpu_began, began = 0, 0.0, time.process_time(), clock()
        while not rows or (took < seconds / _PARTS and not is_over()):
            left = measure - done - rows
            rows += read(min(left, share) if left > 0 else share)[0]
            took = clock() - began
        cpu += time.process_time() - cpu_began
        parts.append((rows, took))
        done, spent = done + rows, spent + took
        tell(min(1.0, done / measure, spent / seconds if seconds else 1.0))
    return parts, cpu


def ignore_progress(*_: int) -> None:
    """Do nothing; used if the caller does not pass a function that shows progress."""


def _rows_in(value: Any) -> int:
    return value.num_rows if isinstance(value, Batch) else 1


def _bytes_in(values: list[Any]) -> int:
    return sum(_bytes(cell) for value in values for cell in _cells(value))


def _cells(value: Any) -> Iterator[Any]:
    """Yield the values of a batch (its columns), of a row, or of all rows of a window."""
    if isinstance(value, Mapping):
        for part in value.values():
            yield from _cells(part)
    elif isinstance(value, tuple):
        yield from value
    else:
        yield value


def _bytes(cell: Any) -> int:
    if isinstance(cell, np.ndarray) and cell.dtype == object:
        return sum(map(_bytes, cell.ravel().tolist()))
    if isinstance(cell, (str, bytes)):
        return len(cell.encode() if isinstance(cell, str) else cell)
    return int(getattr(cell, "nbytes", 0))


def _peak_bytes() -> int:
    """Return the peak resident memory of this process in bytes.

    Linux includes the parent's peak in `ru_maxrss`, so /proc is read first.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
