"""Explanations: what a plan or a mixture will read, keep and mix, in figures, as text and as a dict. Pure.

`petastore.plan.report.explain` works the figures out.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from petastore.plan.report.cost import Cost, EpochCost
from petastore.plan.selection import Pruned

__all__ = ["Explanation", "MixtureExplanation", "ReadFacts", "SourceExplanation"]

_LABEL = 12


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadFacts:
    """What is read of one dataset in the first epoch, by all ranks and by this one."""

    row_groups: int
    """Row groups of the dataset."""

    row_groups_kept: int
    """Row groups of which at least one row is meant."""

    row_groups_empty: int
    """Row groups without rows."""

    dataset_rows: int
    """Rows of the dataset."""

    rows: int
    """Rows that are meant: an epoch of the dataset, over all ranks."""

    pruned: tuple[Pruned, ...]
    """What left the other row groups and rows out, and how many; by `"selection"` where the selection does not say."""

    shuffle_row_groups: bool
    """Whether row groups are permuted."""

    shuffle_rows: bool
    """Whether rows are permuted inside blocks."""

    lanes: int
    """Row groups that are read side by side, over all ranks."""

    block_rows: int
    """Rows of a lane that are permuted together; 1 where rows are not shuffled."""

    seed: int
    """The seed, also where it was drawn."""

    dealt_to: int | None = None
    """For how many ranks row groups are dealt, so that each keeps its own; None where they are not."""

    reads_per_row_group: float
    """Read amplification: how many ranks read a row group that is needed, on average; 1 is ideal."""

    bytes_to_fetch: int
    """Stored bytes that all ranks together fetch in an epoch: of the columns that are read, or of whole row groups
    where sizes of columns are not known, and then they fetch at most this."""

    rank_bytes_to_fetch: int
    """The same of this rank."""

    bytes_of: str
    """What these are bytes of: `"columns"` or `"row groups"`."""

    rows_resident: int
    """Rows of row groups that this rank keeps at hand at most, those included that are not meant."""

    bytes_resident: int
    """Bytes of these row groups once their pages are decompressed, all columns; cells stay encoded."""

    mixing: float
    """Total variation between the labels of a global batch and those of the dataset, were it sorted by label into 100
    equal classes: near `mixing_none`, batches hold one label; near `mixing_uniform`, they are drawn as from an urn. It
    may be smaller still, since lanes come from all parts of the dataset."""

    mixing_uniform: float
    """What a uniform shuffle of the whole dataset would give."""

    mixing_none: float
    """What batches of rows as they are stored would give."""

    def as_dict(self) -> dict[str, Any]:
        """The same as a new dict of JSON values."""
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
        blocks = f"blocks of {_counted(self.block_rows, 'row')}"
        groups = f"row groups {'shuffled' if self.shuffle_row_groups else 'as they are stored'}"
        how = blocks if self.shuffle_rows else groups
        if self.dealt_to is not None:
            how += f", each epoch dealt alike to {_counted(self.dealt_to, 'rank')}"
        return _line("order", f"{_counted(self.lanes, 'lane')}, {how}, seed {self.seed}")

    def _cost_lines(self, rank: int, *, note: str = "") -> list[str]:
        return [
            _line("reads", f"each row group {self.reads_per_row_group:.2f} times over all ranks"),
            _fetched(self.bytes_to_fetch, self.rank_bytes_to_fetch, rank) + note,
            _at_hand(self.rows_resident, self.bytes_resident, rank),
        ]

    def _mixing_line(self) -> str:
        uniform, none = f"a uniform shuffle {self.mixing_uniform:.2f}", f"no shuffle {self.mixing_none:.2f}"
        return _line("mixing", f"{self.mixing:.2f} ({uniform}, {none})")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explanation(ReadFacts):
    """The first epoch of a plan in figures; `str` of it is for people, `as_dict` for programs."""

    rank: int
    """The rank that the plan is for, from 0."""

    ranks: int
    """Ranks that share an epoch."""

    batch_size: int
    """Rows of a full batch of one rank."""

    steps: int
    """Batches of an epoch on each rank."""

    rows_per_rank: tuple[int, int]
    """Fewest and most rows that a rank gets in an epoch, repeats included."""

    last_batch: str
    """What becomes of the last global batch."""

    cost: Cost | None = None
    """What this rank will ask of a storage elsewhere, where that was asked."""

    def as_dict(self) -> dict[str, Any]:
        """The same as a new dict of JSON values; `cost` is there where it was asked."""
        said = super().as_dict()
        if self.cost is None:
            del said["cost"]
        return said

    def __str__(self) -> str:
        lines = [
            *self._kept_lines(),
            *_batch_lines(self.ranks, self.steps, self.batch_size, self.rows_per_rank, self.last_batch),
            self._order_line(),
            *self._cost_lines(self.rank, note=_NOTE[self.bytes_of]),
        ]
        cost = [] if self.cost is None else _cost_lines(self.cost, self.rank)
        return "\n".join([*lines, self._mixing_line(), *cost])


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceExplanation(ReadFacts):
    """What an epoch of a mixture reads of one of its sources.

    `mixing` looks at the rows that the source gives to a global batch.
    """

    proportion: int
    """Positions that the source has in every period of the mixture."""

    rows_given: int
    """Rows that it gives in an epoch of the mixture."""

    passes: float
    """How often it is gone through for that: `rows_given / rows`."""

    def lines(self, rank: int) -> list[str]:
        """The lines for people."""
        given = f"{self.rows_given:,} rows an epoch, {self.passes:.2f} times through"
        costs = [self._order_line(), *self._cost_lines(rank), self._mixing_line()]
        return [_line("gives", given), *self._kept_lines(), *costs]


@dataclasses.dataclass(frozen=True, kw_only=True)
class MixtureExplanation:
    """The first epoch of a mixture in figures, and of each of its sources; `str` is for people, `as_dict` for programs.

    An epoch of `cycle`, which never ends, is taken to be what it takes until each source was read once.
    """

    sources: tuple[SourceExplanation, ...]
    """Each source."""

    stop: str
    """When an epoch ends."""

    batching: str
    """Whether a batch has rows of all sources."""

    seed: int
    """What decides in which order sources have their turns."""

    rows: int
    """Rows of an epoch over all ranks."""

    rank: int
    """The rank that the mixture is for, from 0."""

    ranks: int
    """Ranks that share an epoch."""

    batch_size: int
    """Rows of a full batch of one rank."""

    steps: int
    """Batches of an epoch on each rank."""

    rows_per_rank: tuple[int, int]
    """Fewest and most rows that a rank gets in an epoch, repeats included."""

    last_batch: str
    """What becomes of the last global batch."""

    @property
    def bytes_to_fetch(self) -> int:
        """Stored bytes that all ranks together fetch in an epoch, of all sources."""
        return sum(source.bytes_to_fetch for source in self.sources)

    @property
    def rank_bytes_to_fetch(self) -> int:
        """The same of this rank."""
        return sum(source.rank_bytes_to_fetch for source in self.sources)

    @property
    def bytes_of(self) -> str:
        """What these are bytes of: `"columns"`, or `"row groups"` where that holds for a source."""
        return "columns" if all(source.bytes_of == "columns" for source in self.sources) else "row groups"

    @property
    def rows_resident(self) -> int:
        """Rows of row groups that this rank keeps at hand at most: the most of each source, together."""
        return sum(source.rows_resident for source in self.sources)

    @property
    def bytes_resident(self) -> int:
        """Bytes of these row groups once their pages are decompressed, all columns; cells stay encoded."""
        return sum(source.bytes_resident for source in self.sources)

    def as_dict(self) -> dict[str, Any]:
        """The same as a new dict of JSON values; `sources` is a list of dicts."""
        names = ("bytes_to_fetch", "rank_bytes_to_fetch", "bytes_of", "rows_resident", "bytes_resident")
        return _json(dataclasses.asdict(self)) | {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        period = sum(source.proportion for source in self.sources)
        lines = [
            _line("mixture", f"{_counted(len(self.sources), 'source')}, {_BATCHING[self.batching]}, seed {self.seed}"),
            _line("epoch", f"{self.rows:,} rows; {_STOP[self.stop]}"),
            *_batch_lines(self.ranks, self.steps, self.batch_size, self.rows_per_rank, self.last_batch),
            _fetched(self.bytes_to_fetch, self.rank_bytes_to_fetch, self.rank) + _NOTE[self.bytes_of],
            _at_hand(self.rows_resident, self.bytes_resident, self.rank),
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


def _batch_lines(
    ranks: int, steps: int, batch_size: int, rows_per_rank: tuple[int, int], last_batch: str
) -> tuple[str, str]:
    fewest, most = rows_per_rank
    share = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
    batches = f"{_counted(steps, 'batch', 'batches')} of {_counted(batch_size, 'row')}"
    return _line("batches", f"{_counted(ranks, 'rank')} × {batches}, {share} rows a rank"), _line(
        "last batch", last_batch
    )


def _fetched(everybody: int, own: int, rank: int) -> str:
    return _line("fetched", f"{size_for_people(everybody)} an epoch, {size_for_people(own)} by rank {rank}")


def _cost_lines(cost: Cost, rank: int) -> list[str]:
    def said(number: int, epoch: EpochCost) -> str:
        hits = f", {epoch.hits:,} of {_counted(epoch.entries, 'entry', 'entries')} from the cache"
        asked = f"{_counted(epoch.requests, 'request')}, {size_for_people(epoch.bytes)}"
        return f"epoch {number}: {asked}{hits if epoch.hits else ''}, {epoch.money:,.4g} of money"

    first, *others = [said(number, epoch) for number, epoch in enumerate(cost.epochs)]
    return [_line("asked", f"by rank {rank}; {first}"), *(_line("", other) for other in others)]


def _at_hand(rows: int, size: int, rank: int) -> str:
    return _line("at hand", f"at most {_counted(rows, 'row')} on rank {rank}, {size_for_people(size)}")


def _counted(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def size_for_people(count: float) -> str:
    """Bytes in a unit that keeps the number short.

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
    """The same value with lists for tuples."""
    if isinstance(value, dict):
        return {name: _json(part) for name, part in value.items()}
    return [_json(part) for part in value] if isinstance(value, (list, tuple)) else value
