"""Diagnosis: find out whether the input is the bottleneck of training, in which stage, and what to change. No I/O.

`Reader.diagnosis()` and `DataLoader.diagnosis()` fill the counters. The counters are plain values, so they can be sent
as JSON, or written by hand in a test:

Example:
    >>> print(diagnose(Counters(elapsed_seconds=10, wait_seconds=6, wait_storage_seconds=5.5, is_remote=True)))
    The input is the bottleneck: training waited 60 % of the time for data (storage 55 %, other 5 %). Change: set
    cache_type="local-disk", or raise workers_count.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from petastore.errors import InvalidArgumentError
from petastore.monitoring.activity import STAGES, Stage

__all__ = ["NOT_THE_INPUT", "Bottleneck", "Counters", "Diagnosis", "RankComparison", "compare_ranks", "diagnose"]

Bottleneck: TypeAlias = "Stage | Literal['other']"

NOT_THE_INPUT = 0.05
"""Share of the time below which waiting for data does not hold training back."""

_SLOW_FILE = 3.0
"""Minimum ratio of the slowest file's load time to the median of all files for which the slowest file is named."""

_REREAD = 1.5
"""Minimum ratio of loaded to delivered rows for which the diagnosis reports that too many rows are loaded."""

_SLOW_RANK = 0.05
"""Minimum difference between the wait share of a slow rank and the median of all ranks."""

_NAMES = {"copy": "host-to-device copy"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Counters of one iteration of a reader, from its first batch on. Times are seconds of the training thread."""

    elapsed_seconds: float = 0.0
    """Time of training and waiting together."""

    wait_seconds: float = 0.0
    """Time that training waited for data."""

    wait_storage_seconds: float = 0.0
    """Part of `wait_seconds` that is due to storage: remote requests, and reads from local disks."""

    wait_decoding_seconds: float = 0.0
    """Part of `wait_seconds` that is due to decoding of Parquet pages and cells, and to reads from the page cache."""

    wait_transform_seconds: float = 0.0
    """Part of `wait_seconds` that is due to the function of `transform_spec`, in threads or processes."""

    wait_assembly_seconds: float = 0.0
    """Part of `wait_seconds` that is due to planning, gathering rows into batches, and conversion to tensors."""

    wait_copy_seconds: float = 0.0
    """Part of `wait_seconds` that is due to copies from host memory to the device, in a loader with `device=`."""

    startup_seconds: float = 0.0
    """Wait for the first batch of the reader's first iteration; not part of the other times."""

    rows: int = 0
    """Number of rows that training has received."""

    spans: int = 0
    """Number of spans (groups of consecutive batches that are assembled together) that training has received."""

    ready_spans_mean: float = 0.0
    """Mean number of spans (groups of consecutive batches) that were ready when training requested a span: the
    occupancy of the output queue."""

    spans_ahead: int = 0
    """Maximum number of spans (groups of consecutive batches) that are in preparation or ready."""

    row_groups_loaded: int = 0
    """Number of row groups that were loaded or are being loaded; each load of the same row group counts."""

    rows_released: int = 0
    """Number of rows of the loaded row groups from which training has received all rows of this reader."""

    slowest_file: str | None = None
    """File whose row groups took longest to load on average, of at least two files."""

    slowest_file_seconds: float = 0.0
    """Mean seconds to load a row group of `slowest_file`."""

    median_file_seconds: float = 0.0
    """Median over all files of the mean seconds to load a row group."""

    rows_selected: int = 0
    """Number of rows of one epoch on all ranks together, after filters."""

    rows_of_dataset: int = 0
    """Number of rows of the dataset, before filters."""

    workers: int = 0
    """Maximum number of reading tasks that run at the same time."""

    pool: str = "thread"
    """Pool type of the reader: the argument `reader_pool_type`."""

    cpus: int = 0
    """CPUs that the process may use."""

    memory_budget: int | None = None
    """The reader's argument `memory_budget` in bytes; None without a budget."""

    is_remote: bool = False
    """Whether files are fetched from remote storage."""

    is_cached: bool = False
    """Whether a local disk cache stores the data of remote files."""

    rank: int = 0
    """Number of the reader's shard, from 0."""

    ranks: int = 1
    """Number of shards."""

    def since(self, before: Counters) -> Counters:
        """Return the difference to earlier counters of the same reader: times, rows and groups of batches since then.

        If another iteration has begun since then, return these counters unchanged.

        Example:
            >>> Counters(rows=9, wait_seconds=3.0).since(Counters(rows=4, wait_seconds=1.0)).wait_seconds
            2.0
        """
        if before.rows > self.rows or before.elapsed_seconds > self.elapsed_seconds:  # another iteration has begun
            return self
        names = ("elapsed_seconds", "wait_seconds", *(f"wait_{stage}_seconds" for stage in STAGES), "rows", "spans")
        return dataclasses.replace(self, **{name: getattr(self, name) - getattr(before, name) for name in names})


@dataclasses.dataclass(frozen=True, slots=True)
class Diagnosis:
    """Diagnosis of a reader's input: the bottleneck and its evidence; print it.

    Example:
        >>> found = diagnose(Counters(elapsed_seconds=10, wait_seconds=0.2, wait_decoding_seconds=0.2))
        >>> found.bottleneck, found.wait_share
        (None, 0.02)
        >>> print(found)
        The input is not the bottleneck: training waited 2 % of the time for data.
    """

    bottleneck: Bottleneck | None
    """Stage that training waited for most; `"other"` if no worker was active; None if the input is not the bottleneck,
    because training waited less than 5 % of the time."""

    remedies: tuple[str, ...]
    """Changes that may help, the most likely one first."""

    counters: Counters
    """Counters from which the diagnosis was made; `dataclasses.asdict` converts them to JSON values."""

    @property
    def wait_share(self) -> float:
        """Share of the time that training waited for data, from 0 to 1."""
        return _share(self.counters.wait_seconds, self.counters)

    @property
    def shares(self) -> dict[Bottleneck, float]:
        """Fraction of the elapsed time in which training waited, by stage; the fractions add up to `wait_share`."""
        return _shares(self.counters)

    @property
    def evidence(self) -> str:
        """Text with the share of each stage, largest first, such as `storage 28 %, decoding 3 %`; may be empty."""
        parts = sorted(self.shares.items(), key=lambda item: -item[1])
        return ", ".join(f"{_NAMES.get(name, name)} {_percent(share)}" for name, share in parts if share >= 0.005)

    def __str__(self) -> str:
        counters = self.counters
        if counters.elapsed_seconds <= 0:
            return "Nothing was measured yet: iterate over the reader first."
        waited = f"training waited {_percent(self.wait_share)} of the time for data"
        if self.bottleneck is None:
            return f"The input is not the bottleneck: {waited}."
        slow = ""
        if _has_slow_file(counters) and self.bottleneck in ("storage", "decoding"):
            slow = (
                f"; slowest file {counters.slowest_file}, {counters.slowest_file_seconds * 1e3:,.1f} ms per row group "
                f"(median {counters.median_file_seconds * 1e3:,.1f} ms)"
            )
        return f"The input is the bottleneck: {waited} ({self.evidence}{slow}). Change: {', or '.join(self.remedies)}."


def diagnose(counters: Counters) -> Diagnosis:
    """Return the bottleneck that the counters of a reader show, with its evidence.

    Example:
        >>> diagnose(Counters(elapsed_seconds=4, wait_seconds=3, wait_transform_seconds=2.8)).bottleneck
        'transform'
    """
    if _share(counters.wait_seconds, counters) < NOT_THE_INPUT:
        return Diagnosis(None, (), counters)
    shares = _shares(counters)
    bottleneck = max(shares, key=lambda name: shares[name])
    return Diagnosis(bottleneck, tuple(_remedies(bottleneck, counters)), counters)


def _share(seconds: float, counters: Counters) -> float:
    return min(seconds / counters.elapsed_seconds, 1.0) if counters.elapsed_seconds > 0 else 0.0


def _shares(counters: Counters) -> dict[Bottleneck, float]:
    shares: dict[Bottleneck, float] = {
        stage: _share(getattr(counters, f"wait_{stage}_seconds"), counters) for stage in STAGES
    }
    shares["other"] = max(_share(counters.wait_seconds, counters) - sum(shares.values()), 0.0)
    return shares


def _has_slow_file(counters: Counters) -> bool:
    return counters.slowest_file is not None and (
        counters.slowest_file_seconds >= _SLOW_FILE * counters.median_file_seconds
    )


def _remedies(bottleneck: Bottleneck, counters: Counters) -> list[str]:
    """Return changes that may help against the bottleneck, the most likely one first."""
    return [*_remedies_of_buffers(bottleneck, counters), *_REMEDIES[bottleneck](counters)]


def _remedies_of_buffers(bottleneck: Bottleneck, counters: Counters) -> list[str]:
    """Return remedies for a reader that prepares too little in advance, or loads row groups repeatedly."""
    remedies = []
    if counters.memory_budget is not None and counters.spans_ahead <= counters.workers:
        remedies.append(
            f"raise memory_budget, which allows only {counters.spans_ahead} of {counters.workers + 1} groups of "
            "batches in preparation"
        )
    if bottleneck in ("storage", "decoding") and counters.rows:
        # Not all loaded rows: at first, most of them wait in the shuffle buffer.
        loaded = counters.rows_released / counters.rows
        if loaded >= _REREAD:
            selected = counters.rows_selected / max(counters.rows_of_dataset, 1)
            if selected and loaded * selected >= _REREAD:
                remedies.append(f"raise shuffle_buffer_bytes, since each row is loaded {loaded:.1f} times")
            else:
                remedies.append(
                    f"store the rows sorted by the filter's column, since {loaded:.1f} rows are loaded for each "
                    "selected one"
                )
    return remedies


def _of_storage(counters: Counters) -> list[str]:
    if not counters.is_remote:
        return ["copy the data to a faster disk", "read fewer columns with schema_fields"]
    cache = [] if counters.is_cached else ['set cache_type="local-disk"']
    return [*cache, "raise workers_count"]


def _of_decoding(counters: Counters) -> list[str]:
    if counters.pool == "dummy":
        return ['set reader_pool_type="thread"']
    fewer = ["read fewer columns with schema_fields", "crop and resize images with decode"]
    return [*_more_workers(counters), *fewer]


def _more_workers(counters: Counters) -> list[str]:
    return [f"raise workers_count above {counters.workers}"] if 0 < counters.workers < counters.cpus else []


def _of_transform(counters: Counters) -> list[str]:
    if counters.pool == "process":
        return ["let the function take whole columns: TransformSpec(…, takes='columns')", "raise workers_count"]
    return [
        "let the function take whole columns: TransformSpec(…, takes='columns')",
        'set reader_pool_type="process", which runs it in processes',
    ]


def _of_assembly(counters: Counters) -> list[str]:
    first = ['set reader_pool_type="thread"'] if counters.pool == "dummy" else _more_workers(counters)
    return [*first, "raise batch_size", "if you loop over rows, take batches (a DataLoader, or reader.iter_batches)"]


def _of_copy(_: Counters) -> list[str]:
    return ["send smaller types, such as uint8 images that the GPU converts", "make batches smaller than the step time"]


def _of_other(counters: Counters) -> list[str]:
    if counters.pool == "dummy":
        return ['set reader_pool_type="thread"']
    return ["give the process more CPUs, since workers were ready but did not run", "lower workers_count"]


_REMEDIES = {
    "storage": _of_storage,
    "decoding": _of_decoding,
    "transform": _of_transform,
    "assembly": _of_assembly,
    "copy": _of_copy,
    "other": _of_other,
}


@dataclasses.dataclass(frozen=True, slots=True)
class RankComparison:
    """Comparison of the ranks' diagnoses; print it.

    Example:
        >>> slow, fast = (Counters(rank=rank, elapsed_seconds=10, wait_seconds=s, wait_storage_seconds=s)
        ...     for rank, s in ((1, 4), (0, 0.1)))
        >>> print(compare_ranks([diagnose(fast), diagnose(slow)]))
        Rank 1 is slow: its input took 40 % of the time, and the input of the median rank 1 %. On rank 1: The input is
        the bottleneck: training waited 40 % of the time for data (storage 40 %). Change: copy the data to a faster
        disk, or read fewer columns with schema_fields.
    """

    slow_rank: int | None
    """Rank that waits for data clearly longer than the median rank; None if no rank does."""

    diagnoses: tuple[Diagnosis, ...]
    """Diagnosis of each rank, sorted by rank."""

    def __str__(self) -> str:
        longest = max(self.diagnoses, key=lambda one: one.wait_share)
        if self.slow_rank is None:
            return f"No rank is slow. On rank {longest.counters.rank}: {longest}"
        return (
            f"Rank {self.slow_rank} is slow: its input took {_percent(longest.wait_share)} of the time, and the "
            f"input of the median rank {_percent(_median_wait(self.diagnoses))}. On rank {self.slow_rank}: {longest}"
        )


def compare_ranks(diagnoses: Sequence[Diagnosis | dict[str, Any]]) -> RankComparison:
    """Compare the diagnoses of all ranks, and find a rank that the other ranks wait for.

    In synchronous training, a step takes equally long on all ranks, because ranks with fast input wait for the slowest
    rank in the all-reduce. The slow rank is therefore the rank that waits for its own input.

    Args:
        diagnoses: Diagnosis of each rank, in any order, for example from `torch.distributed.all_gather_object`; or
            `dataclasses.asdict(diagnosis.counters)` of each rank.

    Raises:
        InvalidArgumentError: `diagnoses` is empty, or has two diagnoses of the same rank.
    """
    of_ranks = [one if isinstance(one, Diagnosis) else diagnose(Counters(**one)) for one in diagnoses]
    ranks = [one.counters.rank for one in of_ranks]
    if not ranks or len(set(ranks)) < len(ranks):
        raise InvalidArgumentError(f"diagnoses must have one diagnosis per rank, got ranks {ranks}")
    of_ranks.sort(key=lambda one: one.counters.rank)
    longest = max(of_ranks, key=lambda one: one.wait_share)
    is_slow = longest.bottleneck is not None and longest.wait_share - _median_wait(of_ranks) >= _SLOW_RANK
    return RankComparison(longest.counters.rank if is_slow else None, tuple(of_ranks))


def _median_wait(diagnoses: Sequence[Diagnosis]) -> float:
    return sorted(one.wait_share for one in diagnoses)[(len(diagnoses) - 1) // 2]


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"
