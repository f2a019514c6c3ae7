"""Mixture of several datasets by weight, as one deterministic plan. No I/O.

A mixture is an immutable object with the interface of a plan (`RankPlan`). Its proportions are exact for the
integers to which the weights are rounded, and a run resumes without replay. Its row groups are numbered across all
sources, source by source.

Each source has its own epochs: its q-th row since the first epoch of the mixture is row q % N of its epoch q // N, in
that epoch's order. An epoch of the mixture has M positions, so that each source yields the same number of rows in every
epoch. The source that determines the end of the epoch yields each of its rows equally often: once, unless it was
planned with several epochs.

With `batching="mixed"`, every batch has rows of all sources, as `petastore.plan.mixture.mixed_line` defines. The
remaining rows depend only on the position, so a run can resume from a position with any number of ranks and any batch
size.

With `batching="per_source"`, every global batch is a batch of the plan of one source. The next batch comes from the
source that has yielded the fewest rows compared with its weight, after adding a hashed fraction of a batch. After P
batches of one size, where P is the sum of the integer weights, each source has therefore yielded exactly its share. The
remaining rows depend on the number of rows that each source has yielded, so a cursor inside such an epoch contains
these numbers.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from petastore.errors import InvalidArgumentError, NoDataAvailableError
from petastore.inventory import Inventory, RowPlace
from petastore.lazy import once
from petastore.plan.batches.epoch_batches import EpochBatches, lanes_of
from petastore.plan.batches.spans import EpochOfBatches, Source
from petastore.plan.cursor import Cursor, MixedCursor
from petastore.plan.mixture.mixed_batches import LanesOfSources, SourceBatches, lanes_of_sources, mixed_batches
from petastore.plan.mixture.mixed_line import MixedLine, SourceTurns, common_lanes, mixed_line, proportions
from petastore.plan.order.visits import lane_of_visit
from petastore.plan.plan import Plan
from petastore.plan.rank_plan import RankPlan
from petastore.plan.report.explain import Ranks, checked_column_bytes, explain_source, sampled_steps
from petastore.plan.report.explanation import MixtureExplanation, SourceExplanation
from petastore.plan.report.feeds import MOST_BATCHES, Feeds, feeds_of_spans
from petastore.plan.request import Order, ReadRequest, Shard, known_word, whole_number

__all__ = ["Batching", "Mixture", "Stop"]

Stop: TypeAlias = Literal["first_exhausted", "all_exhausted", "cycle"]
"""End of an epoch of a mixture; see `Mixture.stop`."""

Batching: TypeAlias = Literal["mixed", "per_source"]
"""Whether a batch has rows of all sources or of one; see `Mixture.batching`."""

_ENDLESS = 2**44
"""Number of rows of an endless epoch (`stop="cycle"`): more than any run needs.

Row counts of 2**18 such epochs still fit in 64 bits."""


@dataclasses.dataclass(frozen=True)
class Mixture(RankPlan):
    """Mixture: a plan that mixes the rows of several plans by weight.

    Example:
        >>> order = Order(seed=0, shuffle_row_groups=False, shuffle_rows=False, lanes=1, block_rows=1)
        >>> sources = [Plan(Inventory.of_rows([rows]), ReadRequest(("id",), order)) for rows in (6, 100)]
        >>> mixture = Mixture(sources, weights=[0.75, 0.25])
        >>> mixture.proportions, mixture.num_rows, mixture.rows_per_source, mixture.steps_per_epoch(4)
        ((3, 1), 8, (6, 2), 2)
        >>> [(span.groups.tolist(), span.rows.tolist()) for span in mixture.spans(4, rows_per_span=4)]
        [([0, 0, 1, 0], [0, 1, 0, 2]), ([0, 1, 0, 0], [3, 1, 4, 5])]
    """

    sources: Sequence[Plan]
    """Plans of the sources, with equal shard and `last_batch`.

    The number of epochs of a source (`num_epochs`) is how often it is read in one epoch of the mixture before it counts
    as exhausted; None means endless."""

    weights: Sequence[Any]
    """Weights of the sources, above 0; only their ratio matters."""

    stop: Stop = "first_exhausted"
    """End of an epoch: `"first_exhausted"`, `"all_exhausted"` or `"cycle"`.

    `"first_exhausted"`: when one source is exhausted. `"all_exhausted"`: when all sources are exhausted; until then,
    exhausted sources start over. `"cycle"`: never; numbers of rows and steps per epoch then count until each source was
    read once."""

    batching: Batching = "mixed"
    """Sources of the rows of a batch: `"mixed"` or `"per_source"`.

    `"mixed"`: each batch has rows of all sources, in proportion. `"per_source"`: in each step, the batches of all ranks
    come from one source."""

    seed: int = 0
    """Seed of the order in which sources alternate; any integer."""

    epochs: int | None = 1
    """Number of epochs; None means endless, as `"cycle"` requires."""

    chosen: frozenset[str] = frozenset()
    """`{"seed"}` if the user did not set the seed; otherwise empty.

    A restored state may replace a seed that the user did not set."""

    urls: tuple[str, ...] = ()
    """URL of each source's dataset, with which rows are named; empty if the sources have no URLs."""

    selection: ClassVar[None] = None
    """None, because each source has its own selection."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sources", tuple(self.sources))
        object.__setattr__(self, "weights", tuple(self.weights))
        if len(self.sources) != len(self.weights):
            raise InvalidArgumentError(
                f"weights must be one number per source ({len(self.sources):,}), got {len(self.weights):,}"
            )
        proportions(self.weights)
        known_word(self.stop, Stop, name="stop")
        known_word(self.batching, Batching, name="batching")
        self._check_sources()
        self._check_epochs()
        for number, rows in enumerate(self.rows_per_source):
            if rows == 0:
                raise InvalidArgumentError(
                    f"weights must give each source at least one row per epoch, got {self.weights[number]!r} for "
                    f"source {number}, which gives none of {self.num_rows:,} rows. Increase this weight, remove the "
                    "source, or use stop='all_exhausted' for longer epochs"
                )

    def _check_sources(self) -> None:
        first = self.sources[0].request
        for number, source in enumerate(self.sources):
            request = source.request
            for name, of_source, of_first in (
                ("shard", request.shard, first.shard),
                ("last_batch", request.last_batch, first.last_batch),
            ):
                if of_source != of_first:
                    raise InvalidArgumentError(
                        f"sources must be planned with the same {name}, got {of_source} for source {number} and "
                        f"{of_first} for source 0. Plan all sources with one {name}"
                    )
            if source.num_rows == 0:
                raise NoDataAvailableError(
                    f"each source must have at least one row, got source {number} without rows. Leave that source out"
                )

    def _check_epochs(self) -> None:
        if self.epochs is not None:
            whole_number(self.epochs, name="num_epochs", least=1)
        endless = [number for number, source in enumerate(self.sources) if source.request.epochs is None]
        if self.stop == "cycle" and self.epochs is not None:
            raise InvalidArgumentError(
                f"num_epochs must be None with stop='cycle', which never ends, got {self.epochs}. Pass "
                "num_epochs=None, or another stop"
            )
        if self.stop == "all_exhausted" and endless:
            raise InvalidArgumentError(
                "stop must not be 'all_exhausted' if a source is endless (num_epochs=None), got source "
                f"{endless[0]}, which is endless. Plan this source with a number of epochs, or use "
                "stop='first_exhausted' or 'cycle'"
            )
        if self.stop == "first_exhausted" and len(endless) == len(self.sources):
            raise InvalidArgumentError(
                "stop must be 'cycle' if all sources are endless (num_epochs=None), got 'first_exhausted'. Use "
                "stop='cycle', or plan a source with a number of epochs"
            )

    @once
    def proportions(self) -> tuple[int, ...]:
        """Ratio in which the sources are mixed, as small integers, one for each source."""
        return proportions(self.weights)

    @once
    def request(self) -> ReadRequest:
        """Options of the mixture as a whole.

        Its `order` has the seed of the mixture. Its number of lanes (interleaved sequences of rows) is, if possible, a
        common multiple of those of the sources.
        """
        orders = [source.request.order for source in self.sources]
        order = Order(
            seed=self.seed,
            shuffle_row_groups=any(order.shuffle_row_groups for order in orders),
            shuffle_rows=any(order.shuffle_rows for order in orders),
            lanes=common_lanes(self._lanes, sum(self.proportions)),
            block_rows=max(order.block_rows for order in orders),
        )
        return dataclasses.replace(
            self.sources[0].request, order=order, epochs=self.epochs, chosen=self.chosen & {"seed"}
        )

    @once
    def _lanes(self) -> tuple[int, ...]:
        """Requested number of lanes (interleaved sequences of row groups) of each source.

        If there is only one source, the number is at most the number of its rows, because the mixture must then equal
        the plan of this source.
        """
        lanes = tuple(source.request.order.lanes for source in self.sources)
        return lanes if len(lanes) > 1 else (min(*lanes, self.sources[0].num_rows),)

    @once
    def inventory(self) -> Inventory:
        """Files and row groups of all sources, source after source.

        Paths are relative to the dataset of the source.
        """
        parts = [source.inventory for source in self.sources]
        first_files = itertools.accumulate([len(part.files) for part in parts[:-1]], initial=0)
        arrays = {
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in ("ordinal", "rows", "stored_bytes", "decoded_bytes")
        }
        return Inventory(
            files=tuple(file for part in parts for file in part.files),
            file=np.concatenate([part.file + first for part, first in zip(parts, first_files, strict=True)]),
            **arrays,
        )

    @once
    def named_inventory(self) -> Inventory:
        """Inventory in which the path of each file begins with the URL of its dataset, if `urls` are known."""
        if not self.urls:
            return self.inventory
        named = zip(self.inventory.files, self._urls_of_files, strict=True)
        files = tuple(dataclasses.replace(file, path=f"{url}/{file.path}") for file, url in named)
        return dataclasses.replace(self.inventory, files=files)

    @once
    def _urls_of_files(self) -> list[str]:
        """URL of the dataset of each file; empty if `urls` are not known."""
        return [url for url, source in zip(self.urls, self.sources, strict=False) for _ in source.inventory.files]

    def find_rows(
        self, places: Iterable[RowPlace], *, name: str
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Find rows by `(file, row group, row)`, where the path of a file may begin with the URL of its dataset."""
        return self.inventory.find_rows(places, name=name, urls=self._urls_of_files)

    @once
    def _line(self) -> MixedLine:
        """Source of the row at each position of an epoch."""
        return mixed_line(self.proportions, self.request.order.lanes, self.seed)

    @once
    def _lanes_of_sources(self) -> LanesOfSources:
        """Lookup of the lane from which the row at each position of an epoch comes.

        A lane is one of the sequences of row groups that the row's source interleaves.
        """
        return lanes_of_sources(self._line, tuple(map(self._lanes_of_source, range(len(self.sources)))))

    @once
    def num_rows(self) -> int:
        """Number of rows of an epoch over all ranks."""
        rounds = [1 if self.stop == "cycle" else source.request.epochs for source in self.sources]
        ends = [
            self._line.position(number, self.sources[number].num_rows * times - 1) + 1
            for number, times in enumerate(rounds)
            if times is not None
        ]
        return min(ends) if self.stop == "first_exhausted" else max(ends)

    @once
    def rows_per_source(self) -> tuple[int, ...]:
        """Number of rows that each source yields per epoch."""
        return self._line.counts(self.num_rows)

    @once
    def data_fingerprint(self) -> str:
        """Fingerprint: 32 hexadecimal digits for the selected rows of all sources."""
        return _digest([source.data_fingerprint for source in self.sources])

    @once
    def fingerprint(self) -> str:
        """Fingerprint: 32 hexadecimal digits, equal on all ranks.

        They identify the rows, columns, order, epochs, `last_batch`, the number of ranks and the mixing.
        """
        sources = [source.fingerprint for source in self.sources]
        return _digest([sources, self.proportions, self.stop, self.batching, self.seed, self.epochs])

    def for_shard(self, shard: Shard) -> Self:
        """Return the mixture of the same data for another rank."""
        return dataclasses.replace(self, sources=tuple(source.for_shard(shard) for source in self.sources))

    def explain(self, batch_size: int, *, column_bytes: NDArray[np.int64] | None = None) -> MixtureExplanation:
        """Return figures about the first epoch, per source and in total.

        The figures are bytes to read, memory and mixing quality, as in `Plan.explain`.

        Args:
            batch_size: Rows per full batch on one rank.
            column_bytes: As in `Plan.explain`, for the row groups of all sources, source after source.

        Raises:
            NoDataAvailableError: As in `steps_per_epoch`.
            InvalidArgumentError: `column_bytes` does not match the row groups.
        """
        lengths, shard = self._lengths(batch_size), self.request.shard
        shares = [sum(batches.rows_of(rank) for batches in lengths) for rank in self._every_rank]
        known = checked_column_bytes(column_bytes, int(self.first_groups[-1]))
        of_sources = [None] * len(self.sources) if known is None else np.split(known, self.first_groups[1:-1])
        sources = tuple(self._explained(number, batch_size, each) for number, each in enumerate(of_sources))
        return MixtureExplanation(
            sources=sources,
            stop=self.stop,
            batching=self.batching,
            seed=self.seed,
            rows=self.num_rows,
            rank=shard.index,
            ranks=shard.count,
            batch_size=batch_size,
            steps=sum(batches.steps for batches in lengths),
            rows_per_rank=(min(shares), max(shares)),
            last_batch=self.request.last_batch.value,
            bytes_to_fetch=sum(source.bytes_to_fetch for source in sources),
            rank_bytes_to_fetch=sum(source.rank_bytes_to_fetch for source in sources),
            bytes_of=sources[0].bytes_of,
            rows_resident=sum(source.rows_resident for source in sources),
            bytes_resident=sum(source.bytes_resident for source in sources),
        )

    def _explained(self, number: int, batch_size: int, column_bytes: NDArray[np.int64] | None) -> SourceExplanation:
        """Return the figures about one source, given its number."""
        plan, source, given = self.sources[number], self._sources[number], self.rows_per_source[number]
        return explain_source(
            plan.inventory,
            plan.selection,
            [source.order(epoch) for epoch in sorted({0, given // plan.num_rows})],
            plan.request.order,
            ranks=Ranks([self._own_lanes(number, rank) for rank in self._every_rank], self.request.shard.index),
            proportion=self.proportions[number],
            rows_given=given,
            borders=self._borders(number, batch_size),
            column_bytes=column_bytes,
        )

    def _borders(self, number: int, batch_size: int) -> NDArray[np.int64]:
        """Return the half-open range of a source's rows in each sampled global batch.

        Ranges count the source's rows in epoch order, and have shape (batches, 2). The batches are evenly spaced, and
        come before the source starts over.
        """
        rows, global_batch = self.sources[number].num_rows, batch_size * self.request.shard.count
        if self.batching == "per_source":
            starts = sampled_steps(min(rows, self.rows_per_source[number]) // global_batch) * global_batch
            return np.stack([starts, starts + global_batch], axis=1)
        end = min(self._line.position(number, rows - 1) + 1, self.num_rows)
        starts = sampled_steps(end // global_batch) * global_batch
        borders = [[self._line.count(number, place) for place in (at, at + global_batch)] for at in starts.tolist()]
        return np.array([[start, stop] for start, stop in borders if start < stop], dtype=np.int64).reshape(-1, 2)

    def feeds(self, batch_size: int, *, epoch: int = 0) -> Feeds:
        """Return the row groups from which the first batches of an epoch get rows.

        The result has the batches of every rank.

        Raises:
            NoDataAvailableError: As in `steps_per_epoch`.
        """
        steps = self.steps_per_epoch(batch_size)
        of_ranks = [self.for_shard(rank) for rank in self._every_rank]
        most, begin = MOST_BATCHES * batch_size, Cursor.of_epoch(epoch)
        spans = [each.spans(batch_size, rows_per_span=most, after=begin) for each in of_ranks]
        return feeds_of_spans(spans, num_batches=steps, first_row_groups=tuple(self.first_groups.tolist()))

    @property
    def _every_rank(self) -> list[Shard]:
        count = self.request.shard.count
        return [Shard(rank, count) for rank in range(count)]

    def facts(self) -> dict[str, Any]:
        """Return the values that must be equal on all ranks, by name, as JSON values.

        See `RankPlan.facts`.
        """
        return {**super().facts(), **self.recipe()}

    def recipe(self) -> dict[str, Any]:
        """Return the mixing parameters as a new, small dict of JSON values."""
        return {
            "weights": list(self.proportions),
            "stop": self.stop,
            "batching": self.batching,
            "orders": [list(source.request.order.as_dict().values()) for source in self.sources],
        }

    def _epoch_batches(self, batch_size: int, begin: Cursor) -> EpochOfBatches:
        shard = self.request.shard
        if self.batching == "per_source":
            taken = begin.taken if isinstance(begin, MixedCursor) else None
            of_sources = self._batches_of_sources(batch_size, self._rows_given, taken)
            return SourceBatches(of_sources, self.proportions, shard, hashed_for=(self.seed, begin.epoch))
        batches = self._batches(batch_size, self._walked_rows, begin.position)
        return mixed_batches(self._line, self._lanes_of_sources, self._turns, batches, shard)

    @property
    def _walked_rows(self) -> int:
        return _ENDLESS if self.stop == "cycle" else self.num_rows

    def _batches(self, batch_size: int, num_rows: int, start: int = 0) -> EpochBatches:
        request = self.request
        return EpochBatches(num_rows, batch_size, request.shard.count, request.order.lanes, request.last_batch, start)

    def _batches_of_sources(
        self, batch_size: int, rows: Sequence[int], starts: Sequence[int] | None = None
    ) -> list[EpochBatches]:
        request = self.request
        return [
            EpochBatches(count, batch_size, request.shard.count, lanes, request.last_batch, start)
            for count, lanes, start in zip(rows, self._lanes, starts or (0,) * len(rows), strict=True)
        ]

    def _lengths(self, batch_size: int) -> list[EpochBatches]:
        """Check `batch_size`, and return the batches of a whole epoch.

        With `batching="per_source"`, the list has an item for each source, otherwise one item.
        """
        size = whole_number(batch_size, name="batch_size", least=1)
        if self.batching == "per_source":
            return self._batches_of_sources(size, self.rows_per_source)
        return [self._batches(size, self.num_rows)]

    @once
    def _rows_given(self) -> tuple[int, ...]:
        """Number of rows that each source yields in an epoch.

        For `stop="cycle"`, whose epoch never ends, these are very large numbers.
        """
        return self._line.counts(_ENDLESS) if self.stop == "cycle" else self.rows_per_source

    @once
    def _turns(self) -> list[SourceTurns]:
        """For each source, the lane (interleaved sequence of row groups) of each row."""
        return [self._turns_of(number, rows) for number, rows in enumerate(self._rows_given)]

    def _turns_of(self, number: int, rows: int) -> SourceTurns:
        """Return the lane (interleaved sequence of row groups) of each row of a source.

        Args:
            number: Number of the source.
            rows: Number of rows that the source yields in an epoch of the mixture.
        """
        lanes = self._lanes_of_source(number)
        turns = lane_of_visit(lanes) if self.batching == "per_source" else self._line.turns(number, lanes)
        return SourceTurns(turns, lanes, rows)

    def _sources_in(self, epoch: int) -> list[Source]:  # noqa: ARG002 - the same in every epoch
        return self._sources

    @once
    def _sources(self) -> list[Source]:
        return [self._source(number, plan) for number, plan in enumerate(self.sources)]

    def _source(self, number: int, plan: Plan) -> Source:
        return Source(
            plan.rows,
            plan.num_rows,
            plan.request.order,
            plan.selection,
            self._own_lanes(number, self.request.shard),
            given=self._rows_given[number],
            first_group=int(self.first_groups[number]),
            visits=functools.partial(self._turns[number].of_epoch, num_rows=plan.num_rows),
        )

    def _lanes_of_source(self, number: int) -> int:
        """Return the number of lanes of a source.

        Lanes are the sequences of row groups that are interleaved. With `batching="mixed"`, a source has at most as
        many lanes as the mixture.
        """
        lanes = self._lanes[number]
        return lanes if self.batching == "per_source" else min(lanes, self.request.order.lanes)

    def _own_lanes(self, number: int, shard: Shard) -> range:
        """Return the lanes of a source from which a rank gets its rows.

        Lanes are the sequences of row groups that are interleaved.
        """
        lanes, of_mixture = self._lanes_of_source(number), self.request.order.lanes
        if self.batching == "per_source":
            return lanes_of(shard, lanes)
        shared = lanes_of(shard, of_mixture)
        return range(shared.start * lanes // of_mixture, (shared.stop - 1) * lanes // of_mixture + 1)


def _digest(parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]
