"""How fast a dataset is read on this machine, as a value: `petastore throughput` shows it."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import multiprocessing
import os
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
from petastore.work.workers import PoolType

if TYPE_CHECKING:
    from petastore.codecs import ImageDecode
    from petastore.readers.arguments import ReaderArguments
    from petastore.readers.reader import Reader
    from petastore.transforming.transform import TransformSpec

__all__ = ["Memory", "Throughput", "reader_throughput"]

_PARTS = 20


@dataclasses.dataclass(frozen=True, slots=True)
class Memory:
    """Memory of the process that measured."""

    rss: int | None
    """The most bytes that it had in memory at a time; None where the system does not tell."""


@dataclasses.dataclass(frozen=True, slots=True)
class Throughput:
    """What was measured."""

    rows: int
    """Rows that were read while it was measured."""

    seconds: float
    """How long that took."""

    median: float
    """Rows per second in the middle one of about 20 parts of the measure. Readers work ahead and make rows by many, so
    parts differ more than measures do."""

    slowest: float
    """Rows per second in the slowest of the parts."""

    fastest: float
    """Rows per second in the fastest of the parts."""

    bytes_per_row: float
    """Bytes of a row as arrays, text and bytes, mean over the rows before the measure."""

    cpu: float
    """CPU time of this process by wall time, in percent: 200 is two CPUs at work all the time."""

    first_seconds: float
    """From opening the dataset to the first row or batch."""

    memory_info: Memory
    """The most memory that it took."""

    @property
    def rows_per_second(self) -> float:
        """Rows by seconds, over the whole measure."""
        return self.rows / self.seconds

    @property
    def samples_per_second(self) -> float:
        """The same, by Petastorm's name."""
        return self.rows_per_second

    @property
    def time_mean(self) -> float:
        """Seconds of one row, over the whole measure."""
        return self.seconds / self.rows

    @property
    def bytes_per_second(self) -> float:
        """Bytes of arrays, text and bytes in a second, over the whole measure."""
        return self.rows_per_second * self.bytes_per_row

    def as_json(self) -> dict[str, int | float | None]:
        """The same as JSON, by names that end in their units.

        `rows_per_second` is over the whole measure; what begins with `slowest_`, `median_` or `fastest_` is of that one
        of its parts. `peak_memory_bytes` is None where the system does not tell.
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
    dataset_url: str | os.PathLike[str],
    field_regex: Iterable[str] | None = None,
    warmup_cycles_count: int = 300,
    measure_cycles_count: int = 1000,
    pool_type: PoolType | Any = "thread",
    loaders_count: int | None = None,
    profile_threads: bool = False,
    read_method: Any = "python",
    shuffling_queue_size: int | None = None,  # noqa: ARG001 - of Petastorm's TensorFlow queues
    min_after_dequeue: int | None = None,  # noqa: ARG001 - of Petastorm's TensorFlow queues
    reader_extra_args: ReaderArguments | None = None,
    spawn_new_process: bool = True,
    *,
    batch_size: int | None = None,
    seconds: float = 0,
    decode: Mapping[str, ImageDecode] | None = None,
    transform_spec: TransformSpec | None = None,
    progress: Callable[[int, int], object] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Throughput:
    """Read a dataset and say how fast that went. Parameters stand in the order of Petastorm's function.

    It reads epochs without end, in the order and by the workers that training would have; nothing is done with the
    rows. Files that the system has in memory already are read from there: what is measured a second time is decoding.

    Args:
        dataset_url: The dataset.
        field_regex: Names, or regular expressions over whole names; None is all fields.
        warmup_cycles_count: Rows that are read before the measure.
        measure_cycles_count: Rows that are measured; whole batches, so they may be a few more. Readers work ahead: take
            far more rows than a few row groups have, or what is measured is how fast rows leave memory.
        pool_type: `"thread"`, `"process"` or `"dummy"`, as `reader_pool_type` of `make_reader`.
        loaders_count: Workers; None is one for each CPU that the process may use.
        profile_threads: Has no meaning any more; a profiler such as py-spy looks into all threads.
        read_method: `"python"`; what TensorFlow or Torch make of rows is theirs to measure.
        shuffling_queue_size: Has no meaning any more.
        min_after_dequeue: Has no meaning any more.
        reader_extra_args: More arguments of `make_reader`.
        spawn_new_process: Measure in a new process, whose memory is the reader's alone. Programs that ask for it
            keep their own code under `if __name__ == "__main__":`.
        batch_size: Read batches of columns of so many rows, as adapters do; None reads row by row.
        seconds: Measure at least so long, whatever the rows.
        decode: Hints for images, as of `make_reader`.
        transform_spec: A transform, as of `make_reader`; a new process gets it by pickle.
        progress: Called in this process with rows read and rows in all, some forty times at most: between the parts of
            the warm-up and of the measure, while the clock stands. Where `seconds` decides how long it lasts, the rows
            of the measure are counted by the time that is over.
        clock: Returns seconds; picklable if a new process measures.

    Returns:
        The measure.

    Raises:
        InvalidArgumentError: An argument cannot be.
        NoDataAvailableError: The dataset has no rows.
        DatasetNotFoundError: There is no dataset there.

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
            f"read_method={str(read_method)!r} is not measured; it is 'python', with batch_size= for what adapters read"
        )
    arguments: ReaderArguments = {**(reader_extra_args or {})}
    if decode is not None:
        arguments["decode"] = decode
    if transform_spec is not None:
        arguments["transform_spec"] = transform_spec
    if field_regex is not None:
        arguments.setdefault("schema_fields", [field_regex] if isinstance(field_regex, str) else list(field_regex))
    asked = _Asked(
        dataset_url=os.fspath(dataset_url),
        warmup=whole_number(warmup_cycles_count, name="warmup_cycles_count", least=0),
        measure=whole_number(measure_cycles_count, name="measure_cycles_count", least=1),
        seconds=float(seconds),
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
        return _measured(asked, progress or _tell_nobody)
    return _measured_in_a_new_process(asked, progress or _tell_nobody)


@dataclasses.dataclass(frozen=True, slots=True)
class _Asked:
    dataset_url: str
    warmup: int
    measure: int
    seconds: float
    batch_size: int | None
    arguments: ReaderArguments
    clock: Callable[[], float]


_Progress = Callable[[int, int], object]
_parent: Connection | None = None
"""In a process that was started to measure: where it tells how far it is."""


def _measured_in_a_new_process(asked: _Asked, progress: _Progress) -> Throughput:
    spawn = multiprocessing.get_context("spawn")
    told, telling = spawn.Pipe(duplex=False)
    with told, ProcessPoolExecutor(1, mp_context=spawn, initializer=_tell_to, initargs=(telling,)) as processes:
        with telling:  # the new process alone has it then: when it is done, or dies, there is nothing more to hear
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
    began = clock()
    with make_reader(asked.dataset_url, **asked.arguments) as reader:
        if not reader.num_rows:
            raise NoDataAvailableError(f"{reader.dataset.url} has no rows to read, so nothing can be measured")
        read = _rows(reader) if asked.batch_size is None else _batches(reader, asked.batch_size)
        _, sample = read(1)
        first_seconds = clock() - began
        rows = sum(_rows_in(value) for value in sample)
        sizes, counted = _bytes_in(sample), rows
        while rows < asked.warmup:
            more, values = read(max(1, min(asked.warmup - rows, asked.warmup // _PARTS)))
            rows += more
            sizes, counted = sizes + _bytes_in(values), counted + sum(_rows_in(value) for value in values)
            tell(min(rows, total), total)
        parts, cpu = _parts(
            read,
            asked.measure,
            asked.seconds,
            lambda done: tell(asked.warmup + int(done * asked.measure), total),
            clock,
        )
    return _told(parts, cpu, first_seconds, sizes / counted)


_Read = Callable[[int], tuple[int, list[Any]]]


def _rows(reader: Reader) -> _Read:
    """Reads at least so many rows one by one; returns how many, and the last of them."""
    rows = iter(reader)

    def read(count: int) -> tuple[int, list[Any]]:
        return count, list(deque(itertools.islice(rows, count), maxlen=1))

    return read


def _batches(reader: Reader, batch_size: int) -> _Read:
    """Reads at least so many rows in batches; returns how many, and the last batch."""
    batches = reader.iter_batches(batch_size)

    def read(count: int) -> tuple[int, list[Any]]:
        done, batch = 0, None
        while done < count:
            batch = next(batches)
            done += batch.num_rows
        return done, [batch]

    return read


def _parts(
    read: _Read, measure: int, seconds: float, tell: Callable[[float], object], clock: Callable[[], float]
) -> tuple[list[tuple[int, float]], float]:
    """Rows and seconds of each part of the measure, and the CPU seconds of all; tells the share that is done."""
    parts: list[tuple[int, float]] = []
    done, spent, cpu = 0, 0.0, 0.0
    share = -(-measure // _PARTS)
    while done < measure or spent < seconds:
        rows, took, cpu_began, began = 0, 0.0, time.process_time(), clock()
        while not rows or took < seconds / _PARTS:
            left = measure - done - rows
            rows += read(min(left, share) if left > 0 else share)[0]
            took = clock() - began
        cpu += time.process_time() - cpu_began
        parts.append((rows, took))
        done, spent = done + rows, spent + took
        tell(min(1.0, done / measure, spent / seconds if seconds else 1.0))
    return parts, cpu


def _told(parts: list[tuple[int, float]], cpu: float, first_seconds: float, bytes_per_row: float) -> Throughput:
    rates = [rows / max(seconds, 1e-9) for rows, seconds in parts]
    seconds = max(sum(seconds for _, seconds in parts), 1e-9)
    return Throughput(
        rows=sum(rows for rows, _ in parts),
        seconds=seconds,
        median=statistics.median(rates),
        slowest=min(rates),
        fastest=max(rates),
        bytes_per_row=bytes_per_row,
        cpu=100 * cpu / seconds,
        first_seconds=first_seconds,
        memory_info=Memory(_peak_bytes()),
    )


def _tell_nobody(*_: int) -> None:
    pass


def _rows_in(value: Any) -> int:
    return value.num_rows if isinstance(value, Batch) else 1


def _bytes_in(values: list[Any]) -> int:
    return sum(_bytes(cell) for value in values for cell in _cells(value))


def _cells(value: Any) -> Iterator[Any]:
    """The columns of a batch, the fields of a row, or of all rows of a window."""
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


def _peak_bytes() -> int | None:
    """The most memory that this process had; Linux counts `ru_maxrss` of whoever started the process as well."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
