"""Explanation of a plan or mixture: requests, cost, memory and mixing. No I/O.

The figures are printed as text or returned as a dict. `petastore.plan.report.explain` computes them, and
`petastore.readers.fetches` reads the sizes of row groups from footers. This module estimates the cost epoch by epoch,
with a simulated cache (`petastore.cache.simulate`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.errors import InvalidArgumentError
from petastore.plan.selection import Pruned

__all__ = [
    "Cost",
    "CostModel",
    "EpochCost",
    "Explanation",
    "Fetches",
    "MixtureExplanation",
    "ReadFacts",
    "SourceExplanation",
    "cost_of",
]


GB = 10**9
"""Number of bytes in a gigabyte, for the prices of object stores."""

_SIMULATED = 4096
"""Maximum number of distinct row groups for which the cache is simulated exactly."""


@dataclasses.dataclass(frozen=True, eq=False)
class Fetches:
    """Requests and bytes to fetch row groups from storage and to open files.

    A cache is not taken into account.
    """

    requests: NDArray[np.int64]
    """Number of requests for the column chunks of each row group, shape (row groups,)."""

    bytes: NDArray[np.int64]
    """Response bytes of the requests for each row group, shape (row groups,).

    They include the gaps between column chunks."""

    entries: NDArray[np.int64]
    """Number of cache entries of each row group, shape (row groups,).

    An entry has a column chunk, or several together."""

    kept_bytes: NDArray[np.int64]
    """Bytes on disk of the cache entries of each row group, shape (row groups,)."""

    file: NDArray[np.int32]
    """Number of the file that contains each row group, shape (row groups,)."""

    file_requests: NDArray[np.int64]
    """Number of requests to open each file, shape (files,).

    A file is opened before its first row group is fetched."""

    file_bytes: NDArray[np.int64]
    """Response bytes of the requests to open each file, shape (files,)."""


@dataclasses.dataclass(frozen=True)
class CostModel:
    """Input of a cost estimate: requests, bytes, cache size and prices.

    Raises:
        InvalidArgumentError: A price is below 0, or `cache_bytes` or `epochs` is invalid.
    """

    fetches: Fetches
    """Requests and bytes to fetch each row group and to open each file."""

    cache_bytes: int | None = None
    """Size of this rank's cache in bytes; None means no cache.

    The cache is empty at first."""

    price_per_request: float = 0.0
    """Price of one request, in any currency."""

    price_per_gb: float = 0.0
    """Price of 10⁹ response bytes."""

    epochs: int = 2
    """Number of epochs to estimate, at least 1."""

    def __post_init__(self) -> None:
        least = {"price_per_request": 0, "price_per_gb": 0, "cache_bytes": 0, "epochs": 1}
        for name, bound in least.items():
            value = getattr(self, name)
            if value is not None and not value >= bound:
                raise InvalidArgumentError(f"{name} must be at least {bound}, got {value!r}")


@dataclasses.dataclass(frozen=True)
class EpochCost:
    """Estimated requests and cost of one epoch on one rank."""

    requests: int
    """Number of requests for column chunks and file footers."""

    bytes: int
    """Bytes of the responses."""

    entries: int
    """Number of cache entries that are read: column chunks, or several together."""

    hits: int
    """Number of cache hits among the cache entries that are read."""

    money: float
    """Cost of `requests` and `bytes`, in the currency of the prices."""


@dataclasses.dataclass(frozen=True)
class Cost:
    """Estimated requests of one rank and their cost."""

    epochs: tuple[EpochCost, ...]
    """Cost of each epoch, from the first."""

    @property
    def money(self) -> float:
        """Total cost of all estimated epochs."""
        return sum(epoch.money for epoch in self.epochs)


def cost_of(orders: Sequence[NDArray[np.int64]], model: CostModel) -> Cost:
    """Estimate requests and cost of the first epochs, with a simulated cache.

    A row group in the cache needs no request. The simulation is exact if all row groups fit into the cache, or if the
    epochs together read at most 4,096 different row groups. Otherwise, it assumes that the first row groups stay
    cached.

    Args:
        orders: For each epoch, the numbers of its row groups in reading order; each is fetched once per epoch.
        model: Requests and bytes per row group, cache size and prices.

    Raises:
        InvalidArgumentError: `model.fetches` has fewer row groups than `orders`.

    Example:
        >>> one = np.ones(4, np.int64)
        >>> fetches = Fetches(2 * one, 100 * one, 3 * one, 8192 * one, np.zeros(4, np.int32), one[:1], 50 * one[:1])
        >>> order = np.array([2, 0, 1, 3])
        >>> half = CostModel(fetches, cache_bytes=16_384, price_per_request=0.25)
        >>> [(epoch.requests, epoch.bytes, epoch.hits, epoch.money) for epoch in cost_of([order] * 2, half).epochs]
        [(9, 450, 0, 2.25), (4, 200, 6, 1.0)]
    """
    fetches = model.fetches
    if any(len(order) and order.max() >= len(fetches.requests) for order in orders):
        raise InvalidArgumentError(
            f"fetches must cover all row groups of the plan, got {len(fetches.requests):,} row groups where the plan "
            f"reads row group {max(order.max() for order in orders if len(order)):,}. Make fetches and plan from the "
            "same dataset"
        )
    begun = np.zeros(len(fetches.file_requests), dtype=np.bool_)
    epochs = []
    for order, is_kept in zip(orders, _hits(orders, model), strict=True):
        missing = order[~is_kept]
        new = np.unique(fetches.file[missing])
        new = new[~begun[new]]
        begun[new] = True
        requests = int(fetches.requests[missing].sum() + fetches.file_requests[new].sum())
        size = int(fetches.bytes[missing].sum() + fetches.file_bytes[new].sum())
        money = requests * model.price_per_request + size / GB * model.price_per_gb
        entries, hits = int(fetches.entries[order].sum()), int(fetches.entries[order[is_kept]].sum())
        epochs.append(EpochCost(requests, size, entries, hits, money))
    return Cost(tuple(epochs))


def _hits(orders: Sequence[NDArray[np.int64]], model: CostModel) -> list[NDArray[np.bool_]]:
    """Return, for each epoch, a mask of its row groups that are cache hits.

    The row groups are in reading order. For the simulated cache, see `cost_of`.
    """
    sizes, room = model.fetches.kept_bytes, model.cache_bytes
    if room is None:
        return [np.zeros(len(order), dtype=np.bool_) for order in orders]
    ever = np.unique(np.concatenate(orders))
    if int(sizes[ever].sum()) > room and len(ever) <= _SIMULATED:
        # Imported here, because the import takes 20 ms and only `cost` needs it.
        from petastore.cache.next_use import simulate

        return simulate(orders, sizes, room, "belady")
    kept = np.zeros(len(sizes), dtype=np.bool_)
    are_kept, taken = [], 0
    for order in orders:
        are_kept.append(kept[order])
        new = order[~kept[order]]
        after = taken + np.cumsum(sizes[new])
        stays = new[: int(np.searchsorted(after, room, side="right"))]
        kept[stays] = True
        taken += int(sizes[stays].sum())
    return are_kept


_LABEL = 12


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadFacts:
    """Figures about reading one dataset in the first epoch, on all ranks and this one."""

    row_groups: int
    """Number of row groups of the dataset."""

    row_groups_kept: int
    """Number of row groups with at least one selected row."""

    row_groups_empty: int
    """Number of row groups without rows."""

    dataset_rows: int
    """Number of rows of the dataset."""

    rows: int
    """Number of selected rows, which are the rows per epoch over all ranks."""

    pruned: tuple[Pruned, ...]
    """Numbers of row groups and rows that each filter step excluded.

    A single step `"selection"` if the steps are unknown."""

    shuffle_row_groups: bool
    """Whether row groups are read in random order."""

    shuffle_rows: bool
    """Whether rows are shuffled, within blocks of `block_rows` rows."""

    lanes: int
    """Number of row groups that all ranks together read concurrently and interleave."""

    block_rows: int
    """Number of rows that are shuffled together in each lane; 1 without shuffled rows.

    A lane is one of the interleaved sequences of row groups."""

    seed: int
    """Seed of the row order, also if petastore chose it."""

    dealt_to: int | None = None
    """Number of ranks to which whole row groups are assigned; None without assignment.

    With it, each rank reads the same row groups in every epoch; otherwise, rows are divided among ranks."""

    reads_per_row_group: float
    """Read amplification: mean number of ranks that read the same row group.

    1 is ideal."""

    bytes_to_fetch: int
    """Stored bytes that all ranks fetch per epoch.

    They count the selected columns. If the sizes of columns are unknown, they count whole row groups (an upper bound).
    """

    rank_bytes_to_fetch: int
    """Stored bytes that this rank fetches in an epoch."""

    bytes_of: str
    """Basis of the byte counts: `"columns"` or `"row groups"`.

    `"row groups"` means that the sizes of columns are unknown."""

    rows_resident: int
    """Peak number of rows in this rank's memory.

    Row groups are in memory as a whole, with rows that are not selected."""

    bytes_resident: int
    """Peak decompressed bytes of the row groups in this rank's memory.

    They count all columns, before cells are decoded."""

    mixing: float
    """Mixing quality: distance between the labels of a global batch and the dataset.

    It is the total variation distance between both label distributions, if the dataset were sorted by label, with 100
    labels of equal size. Near `mixing_none`, a batch has one label; near `mixing_uniform`, it is a uniform sample. The
    value can be less than `mixing_uniform`, because the row groups that are interleaved come from all parts of the
    dataset."""

    mixing_uniform: float
    """Value of `mixing` for a uniform shuffle of the whole dataset."""

    mixing_none: float
    """Value of `mixing` without any shuffling."""

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as a new dict of JSON values."""
        return _json(dataclasses.asdict(self))

    def _kept_lines(self) -> list[str]:
        groups = [f"{step.row_groups:,} pruned by {_BY[step.by]}" for step in self.pruned if step.row_groups]
        empty = [f"{self.row_groups_empty:,} without rows"] if self.row_groups_empty else []
        rows = [f"{step.rows:,} by {_BY[step.by]}" for step in self.pruned]
        of_rows = f"{self.rows:,} of {self.dataset_rows:,}" + (f"; left out: {', '.join(rows)}" if rows else "")
        return [
            _line("row groups", "; ".join([f"{self.row_groups_kept:,} of {self.row_groups:,}", *groups, *empty])),
            _line("rows", of_rows),
        ]

    def _order_line(self) -> str:
        blocks = f"blocks of {counted(self.block_rows, 'row')}"
        groups = f"row groups {'shuffled' if self.shuffle_row_groups else 'as they are stored'}"
        how = blocks if self.shuffle_rows else groups
        if self.dealt_to is not None:
            how += f", each of {counted(self.dealt_to, 'rank')} has the same row groups in every epoch"
        return _line("order", f"{counted(self.lanes, 'lane')}, {how}, seed {self.seed}")

    def _cost_lines(self, rank: int, *, note: str = "") -> list[str]:
        return [
            _line("reads", f"each row group {self.reads_per_row_group:.2f} times over all ranks"),
            _fetched(self.bytes_to_fetch, self.rank_bytes_to_fetch, rank) + note,
            _in_memory(self.rows_resident, self.bytes_resident, rank),
        ]

    def _mixing_line(self) -> str:
        uniform, none = f"a uniform shuffle {self.mixing_uniform:.2f}", f"no shuffle {self.mixing_none:.2f}"
        return _line("mixing", f"{self.mixing:.2f} ({uniform}, {none})")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchFacts:
    """Division of an epoch into batches, for all ranks and this rank."""

    rank: int
    """Rank of the plan or mixture, from 0."""

    ranks: int
    """Number of ranks that share an epoch."""

    batch_size: int
    """Number of rows of a full batch on one rank."""

    steps: int
    """Number of batches of an epoch on each rank."""

    rows_per_rank: tuple[int, int]
    """Smallest and largest number of rows that a rank gets in an epoch, with repeats."""

    last_batch: str
    """Policy for the rows that do not fill the last global batch."""

    def _batch_lines(self) -> list[str]:
        fewest, most = self.rows_per_rank
        share = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
        batches = f"{counted(self.steps, 'batch', 'batches')} of {counted(self.batch_size, 'row')}"
        text = f"{counted(self.ranks, 'rank')} × {batches}, {share} rows a rank"
        return [_line("batches", text), _line("last batch", self.last_batch)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explanation(BatchFacts, ReadFacts):
    """Figures about a plan's first epoch, from `Plan.explain`.

    Print the object, or call `as_dict()`.
    """

    cost: Cost | None = None
    """Estimated requests of this rank to remote storage, and their cost.

    None if `explain` was called without `storage`."""

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as a new dict of JSON values.

        The key `cost` exists only if `explain` was called with `storage`.
        """
        figures = super().as_dict()
        if self.cost is None:
            del figures["cost"]
        return figures

    def __str__(self) -> str:
        lines = [
            *self._kept_lines(),
            *self._batch_lines(),
            self._order_line(),
            *self._cost_lines(self.rank, note=_NOTE[self.bytes_of]),
        ]
        cost = [] if self.cost is None else _cost_lines(self.cost, self.rank)
        return "\n".join([*lines, self._mixing_line(), *cost])


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceExplanation(ReadFacts):
    """Figures about one source of a mixture in the first epoch.

    `mixing` compares the rows of this source in a global batch with all rows of this source.
    """

    proportion: int
    """Weight of this source as an integer.

    Rows of the sources are mixed in the ratio of these integers."""

    rows_given: int
    """Number of rows of this source per epoch of the mixture."""

    passes: float
    """How often this source is read in an epoch of the mixture: `rows_given / rows`."""

    def lines(self, rank: int) -> list[str]:
        """Return the figures as lines of text; `rank` is the rank to name in them."""
        given = f"{self.rows_given:,} rows an epoch, {self.passes:.2f} times through"
        costs = [self._order_line(), *self._cost_lines(rank), self._mixing_line()]
        return [_line("gives", given), *self._kept_lines(), *costs]


@dataclasses.dataclass(frozen=True, kw_only=True)
class MixtureExplanation(BatchFacts):
    """Figures about a mixture's first epoch, from `Mixture.explain`.

    Print the object, or call `as_dict()`. With `stop="cycle"`, an epoch lasts until each source was read once.
    """

    sources: tuple[SourceExplanation, ...]
    """Figures about each source of the mixture."""

    stop: str
    """End of an epoch: the argument `stop` of `make_mixed_reader`."""

    batching: str
    """Sources of a batch: the argument `batching` of `make_mixed_reader`."""

    seed: int
    """Seed of the order in which sources alternate."""

    rows: int
    """Number of rows of an epoch over all ranks."""

    bytes_to_fetch: int
    """Stored bytes that all ranks fetch in an epoch, from all sources."""

    rank_bytes_to_fetch: int
    """Stored bytes that this rank fetches in an epoch."""

    bytes_of: str
    """Basis of the byte counts: `"columns"` or `"row groups"`.

    `"row groups"` means that the sizes of columns are unknown."""

    rows_resident: int
    """Peak number of rows in this rank's memory: the sum of the sources' peaks.

    Row groups are in memory as a whole."""

    bytes_resident: int
    """Peak decompressed bytes of the row groups in this rank's memory.

    They count all columns, before cells are decoded; the sum of the sources' peaks."""

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as a new dict of JSON values; `sources` is a list of dicts."""
        return _json(dataclasses.asdict(self))

    def __str__(self) -> str:
        period = sum(source.proportion for source in self.sources)
        lines = [
            _line("mixture", f"{counted(len(self.sources), 'source')}, {_BATCHING[self.batching]}, seed {self.seed}"),
            _line("epoch", f"{self.rows:,} rows; {_STOP[self.stop]}"),
            *self._batch_lines(),
            _fetched(self.bytes_to_fetch, self.rank_bytes_to_fetch, self.rank) + _NOTE[self.bytes_of],
            _in_memory(self.rows_resident, self.bytes_resident, self.rank),
        ]
        for number, source in enumerate(self.sources):
            share = f"{source.proportion:,} of {period:,} rows ({source.proportion / period:.1%})"
            lines += [f"source {number}: {share}", *(f"  {line}" for line in source.lines(self.rank))]
        return "\n".join(lines)


_BY = {
    "row-group index": "the row-group index",
    "partition values": "partition values",
    "statistics": "statistics",
    "filter": "the filter",
    "predicate": "the predicate",
    "excluded rows": "exclude_rows",
    "bad rows": "on_error",
    "windows": "windows, which begin with others",
    "selection": "the selection",
}

_NOTE = {"columns": "", "row groups": "; of whole row groups, since sizes of columns are not known"}

_BATCHING = {"mixed": "each batch of all of them", "per_source": "each batch of one of them"}

_STOP = {
    "first_exhausted": "it ends with the last row of the first source that is exhausted",
    "all_exhausted": "it ends when all sources are exhausted, and the others start over until then",
    "cycle": "it never ends; this is what it takes until each source was read once",
}


def _line(label: str, text: str) -> str:
    return f"{label:<{_LABEL}}{text}"


def _fetched(everybody: int, own: int, rank: int) -> str:
    return _line("fetched", f"{size_for_people(everybody)} an epoch, {size_for_people(own)} by rank {rank}")


def _cost_lines(cost: Cost, rank: int) -> list[str]:
    def line(number: int, epoch: EpochCost) -> str:
        hits = f", {epoch.hits:,} of {counted(epoch.entries, 'entry', 'entries')} from the cache"
        requests = f"{counted(epoch.requests, 'request')}, {size_for_people(epoch.bytes)}"
        return f"epoch {number}: {requests}{hits if epoch.hits else ''}, cost {epoch.money:,.4g}"

    first, *others = [line(number, epoch) for number, epoch in enumerate(cost.epochs)]
    return [_line("requests", f"by rank {rank}; {first}"), *(_line("", other) for other in others)]


def _in_memory(rows: int, size: int, rank: int) -> str:
    return _line("in memory", f"at most {counted(rows, 'row')} on rank {rank}, {size_for_people(size)}")


def counted(count: int, one: str, many: str | None = None) -> str:
    """Return a count with its noun, in the singular or plural.

    Example:
        >>> counted(1, "row"), counted(1200, "row"), counted(2, "batch", "batches")
        ('1 row', '1,200 rows', '2 batches')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def size_for_people(count: float) -> str:
    """Format a number of bytes in a unit that keeps the number short.

    Example:
        >>> size_for_people(1000), size_for_people(1536), size_for_people(3 * 2**40)
        ('1,000 B', '1.5 KiB', '3.0 TiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"


def _json(value: Any) -> Any:
    """Return the value with all tuples in it converted to lists."""
    if isinstance(value, dict):
        return {name: _json(part) for name, part in value.items()}
    return [_json(part) for part in value] if isinstance(value, (list, tuple)) else value
