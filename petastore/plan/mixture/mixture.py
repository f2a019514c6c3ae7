"""Several datasets by weight, as one plan: deterministic, in exact proportions, without replaying anything. Pure.

A mixture is a value like a plan, and answers what a reader asks of one: spans, steps, rows, units. Its row groups are
numbered through all sources, source after source.

Each source goes on through epochs of its own: the q-th row that it gives since the first epoch of the mixture is row
q % N of its epoch q // N, in that epoch's order. An epoch of the mixture has M positions, so that each source gives the
same number of rows in every epoch, and the one that decides when the epoch ends gives each of its rows exactly once.

With `batching="mixed"` every batch holds rows of all sources (`petastore.plan.mixture.mixed_line` says which). A
position says everything: whoever goes on there has the rows that are left, with any number of ranks and any batch size.

With `batching="per_source"` every global batch is of one source, cut as that source alone would cut it. The next batch
is of the source that lies furthest behind its weight, by the rows that it has given, give or take a hashed part of a
batch; so after P batches of one size each source has given exactly its share of batches. Which rows are left then
depends on how many each source has given, so a cursor in the middle of such an epoch says that too.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from petastore.drawing import draw
from petastore.errors import InvalidArgumentError, NoDataAvailableError
from petastore.inventory import Inventory
from petastore.once import once
from petastore.plan.agreement import AllGather, assert_agreed, facts_of
from petastore.plan.batches.load_order import LoadOrder, Stretch, load_order
from petastore.plan.batches.residency import at_hand_bytes, room_rows
from petastore.plan.batches.spans import EpochOfBatches, Pace, Source, Span, Walk
from petastore.plan.batches.tail import EpochBatches, lanes_of
from petastore.plan.cursor import Cursor, MixedCursor
from petastore.plan.mixture.mixed_batches import SourceBatches, mixed_batches
from petastore.plan.mixture.mixed_line import MixedLine, SourceTurns, common_lanes, mixed_line, proportions
from petastore.plan.mixture.mixed_runs import LanesOfSources, lanes_of_sources
from petastore.plan.order.visits import lane_of_visit
from petastore.plan.plan import Plan
from petastore.plan.report.explain import Ranks, checked_column_bytes, explain_source, sampled_steps
from petastore.plan.report.explanation import MixtureExplanation, SourceExplanation
from petastore.plan.report.feeds import MOST_BATCHES, Feeds, feeds_of_spans
from petastore.plan.request import Order, ReadRequest, Shard, known_word, whole_number
from petastore.plan.unit import ReadUnit

__all__ = ["Batching", "Mixture", "Stop"]

Stop: TypeAlias = Literal["first_exhausted", "all_exhausted", "cycle"]
"""When an epoch of a mixture ends; see `Mixture.stop`."""

Batching: TypeAlias = Literal["mixed", "per_source"]
"""Which sources a batch has rows of; see `Mixture.batching`."""

_ROUNDS = 16
"""How often a source may start over in what is told at a time of the order in which row groups are loaded."""

_ENDLESS = 2**44
"""Positions of an epoch of `cycle`: more than anyone trains on, and few enough to count 2**18 passes in 64 bits."""


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Several plans, read by weight as if they were one.

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
    """Plans of the sources, with one shard and `last_batch`. The epochs of a source are how often an epoch of the
    mixture reads it before it is exhausted; None is without end."""

    weights: Sequence[Any]
    """How often each source has its turn: numbers above 0; only their proportion counts."""

    stop: Stop = "first_exhausted"
    """When an epoch ends: with the last row of the first source that is exhausted (`"first_exhausted"`); of the last
    one, while the others start over (`"all_exhausted"`); or never (`"cycle"`). Lengths of `"cycle"`, which people ask
    for all the same, are what it takes until each source was read once."""

    batching: Batching = "mixed"
    """`"mixed"`: a batch has rows of all sources, in proportion. `"per_source"`: the batches of a step are, on all
    ranks, of one source."""

    seed: int = 0
    """Any integer; decides in which order sources have their turns, and nothing else."""

    epochs: int | None = 1
    """How often; None is without end, and what `cycle` needs."""

    chosen: frozenset[str] = frozenset()
    """`{"seed"}` where nobody asked for the seed: a state that is restored may bring its own."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sources", tuple(self.sources))
        object.__setattr__(self, "weights", tuple(self.weights))
        if len(self.sources) != len(self.weights):
            raise InvalidArgumentError(f"{len(self.sources):,} sources were given, but {len(self.weights):,} weights")
        proportions(self.weights)
        known_word(self.stop, Stop, name="stop")
        known_word(self.batching, Batching, name="batching")
        self._check_sources()
        self._check_epochs()
        for number, rows in enumerate(self.rows_per_source):
            if rows == 0:
                raise InvalidArgumentError(
                    f"source {number} would not give a row in the {self.num_rows:,} rows of an epoch; give it more "
                    "weight, leave it out, or let epochs be longer by stop='all_exhausted'"
                )

    def _check_sources(self) -> None:
        first = self.sources[0].request
        for number, source in enumerate(self.sources):
            request = source.request
            for name, asked, of_first in (
                ("shard", request.shard, first.shard),
                ("last_batch", request.last_batch, first.last_batch),
            ):
                if asked != of_first:
                    raise InvalidArgumentError(
                        f"source {number} was planned with {name} {asked}, but source 0 with {of_first}; sources that "
                        "are mixed must have the same"
                    )
            if source.num_rows == 0:
                raise NoDataAvailableError(f"source {number} has no rows to mix; leave it out")

    def _check_epochs(self) -> None:
        if self.epochs is not None:
            whole_number(self.epochs, name="num_epochs", least=1)
        endless = [number for number, source in enumerate(self.sources) if source.request.epochs is None]
        if self.stop == "cycle" and self.epochs is not None:
            raise InvalidArgumentError(f"stop='cycle' never ends, but num_epochs={self.epochs}; give num_epochs=None")
        if self.stop == "all_exhausted" and endless:
            raise InvalidArgumentError(f"stop='all_exhausted' never comes: source {endless[0]} is endless")
        if self.stop == "first_exhausted" and len(endless) == len(self.sources):
            raise InvalidArgumentError("stop='first_exhausted' never comes: all sources are endless; say stop='cycle'")

    @once
    def proportions(self) -> tuple[int, ...]:
        """Positions that each source has in every period: small whole numbers, as `mixed_line.proportions` says."""
        return proportions(self.weights)

    @once
    def request(self) -> ReadRequest:
        """What was asked of all sources together; its order has the seed and the lanes of the mixture."""
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
        """Lanes of each source, as they are asked for.

        A source that is alone has no more of them than it has rows, as its plan has; the mixture is that plan.
        """
        lanes = tuple(source.request.order.lanes for source in self.sources)
        return lanes if len(lanes) > 1 else (min(*lanes, self.sources[0].num_rows),)

    @once
    def inventory(self) -> Inventory:
        """The row groups of all sources, source after source; paths are relative to their own dataset."""
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
    def first_groups(self) -> NDArray[np.int64]:
        """The number of each source's first row group, and the number of all; shape (sources + 1,)."""
        counts = [source.inventory.num_row_groups for source in self.sources]
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    def unit(self, group: int) -> ReadUnit:
        """The work item that reads a row group, given by its number among those of all sources."""
        source = self.source_of(group)
        unit = self.sources[source].unit(group - self._first_groups[source])
        return ReadUnit(group, unit.file, unit.row_group, unit.rows, unit.columns)

    def source_of(self, group: int) -> int:
        """The source of a row group, given by its number among those of all sources."""
        return bisect.bisect_right(self._first_groups, group) - 1

    @once
    def _first_groups(self) -> list[int]:
        first_groups: list[int] = self.first_groups.tolist()
        return first_groups

    @once
    def _line(self) -> MixedLine:
        return mixed_line(self.proportions, self.request.order.lanes, self.seed)

    @once
    def _lanes_of_sources(self) -> LanesOfSources:
        return lanes_of_sources(self._line, tuple(map(self._lanes_of_source, range(len(self.sources)))))

    @once
    def num_rows(self) -> int:
        """Rows of an epoch over all ranks."""
        rounds = [1 if self.stop == "cycle" else source.request.epochs for source in self.sources]
        ends = [
            self._line.position(number, self.sources[number].num_rows * times - 1) + 1
            for number, times in enumerate(rounds)
            if times is not None
        ]
        return min(ends) if self.stop == "first_exhausted" else max(ends)

    @once
    def rows_per_source(self) -> tuple[int, ...]:
        """Rows that each source gives in an epoch."""
        return self._line.counts(self.num_rows)

    @once
    def data_fingerprint(self) -> str:
        """32 hexadecimal digits that stand for the rows of all sources, in their order."""
        return _digest([source.data_fingerprint for source in self.sources])

    @once
    def fingerprint(self) -> str:
        """32 hexadecimal digits over everything that decides which rows come when; equal on all ranks of a training."""
        sources = [source.fingerprint for source in self.sources]
        return _digest([sources, self.proportions, self.stop, self.batching, self.seed, self.epochs])

    def steps_per_epoch(self, batch_size: int) -> int:
        """Batches of an epoch, the same on every rank.

        Raises:
            NoDataAvailableError: `last_batch="even"` with fewer rows than ranks; `per_source`, of any source.
        """
        return sum(batches.steps for batches in self._lengths(batch_size))

    def rows_per_epoch(self, batch_size: int) -> int:
        """Rows that this rank gets in an epoch, repeats of `pad` and `wrap` included."""
        return sum(batches.rows_of(self.request.shard) for batches in self._lengths(batch_size))

    def steps_left(self, batch_size: int, after: Cursor) -> int | None:
        """Batches from a cursor to the end of its pass, the same on every rank; None where a pass has no end."""
        if self.epochs is None or self.stop == "cycle":
            return None
        if after.is_at_end(self.epochs):
            return 0
        whole = after.pass_ends(self.epochs).epoch - after.next_epoch().epoch
        rest = self._epoch_batches(batch_size, after).steps
        return rest + whole * self.steps_per_epoch(batch_size)

    def for_shard(self, shard: Shard) -> Mixture:
        """The same mixture as another rank sees it."""
        return dataclasses.replace(self, sources=tuple(source.for_shard(shard) for source in self.sources))

    def explain(self, batch_size: int, *, column_bytes: NDArray[np.int64] | None = None) -> MixtureExplanation:
        """What the first epoch reads of each source, keeps and mixes; see `Plan.explain`.

        Args:
            batch_size: Rows of a full batch of one rank.
            column_bytes: As for `Plan.explain`, of the row groups of all sources, source after source.

        Raises:
            NoDataAvailableError: As `steps_per_epoch`.
            InvalidArgumentError: `column_bytes` does not fit the row groups.
        """
        lengths, shard = self._lengths(batch_size), self.request.shard
        shares = [sum(batches.rows_of(rank) for batches in lengths) for rank in self._every_rank]
        known = checked_column_bytes(column_bytes, int(self.first_groups[-1]))
        of_sources = [None] * len(self.sources) if known is None else np.split(known, self.first_groups[1:-1])
        return MixtureExplanation(
            sources=tuple(self._explained(number, batch_size, each) for number, each in enumerate(of_sources)),
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
        )

    def _explained(self, number: int, batch_size: int, column_bytes: NDArray[np.int64] | None) -> SourceExplanation:
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
        """Which rows of the first pass through a source some global batches have, half-open; shape (batches, 2)."""
        rows, global_batch = self.sources[number].num_rows, batch_size * self.request.shard.count
        if self.batching == "per_source":
            starts = sampled_steps(min(rows, self.rows_per_source[number]) // global_batch) * global_batch
            return np.stack([starts, starts + global_batch], axis=1)
        end = min(self._line.position(number, rows - 1) + 1, self.num_rows)
        starts = sampled_steps(end // global_batch) * global_batch
        borders = [[self._line.count(number, place) for place in (at, at + global_batch)] for at in starts.tolist()]
        return np.array([[start, stop] for start, stop in borders if start < stop], dtype=np.int64).reshape(-1, 2)

    def feeds(self, batch_size: int) -> Feeds:
        """Which row groups feed which batches, on every rank, at the beginning of the first epoch.

        Raises:
            NoDataAvailableError: As `steps_per_epoch`.
        """
        steps = self.steps_per_epoch(batch_size)
        of_ranks = [self.for_shard(rank) for rank in self._every_rank]
        spans = [each.spans(batch_size, rows_per_span=MOST_BATCHES * batch_size) for each in of_ranks]
        return feeds_of_spans(spans, num_batches=steps, first_row_groups=tuple(self.first_groups.tolist()))

    def plot(self, batch_size: int) -> Any:
        """The same as a new `matplotlib.figure.Figure`; lines divide the sources. See `Plan.plot`.

        Raises:
            NoDataAvailableError: As `steps_per_epoch`.
            MissingExtraError: matplotlib is not installed.
        """
        return draw(self.feeds(batch_size))

    @property
    def _every_rank(self) -> list[Shard]:
        count = self.request.shard.count
        return [Shard(rank, count) for rank in range(count)]

    def at_hand_bytes(self, group_bytes: NDArray[np.int64], *, early: int) -> int:
        """Most bytes of row groups that this rank keeps at a time, as if all sources had their most at once.

        Args:
            group_bytes: Of each row group of all sources, source after source, shape (groups,).
            early: Positions before they are needed at which row groups are fetched.
        """
        of_sources = np.split(group_bytes, self.first_groups[1:-1])
        return sum(
            at_hand_bytes(source.order(0), source.own_lanes, of_source, early)
            for source, of_source in zip(self._sources, of_sources, strict=True)
        )

    @once
    def room_rows(self) -> int:
        """Rows for which there has to be room where the row groups at hand stand side by side, all sources together."""
        if len(self.sources) == 1:
            return self.sources[0].room_rows
        return sum(
            room_rows(
                plan.inventory.rows,
                plan.num_rows,
                lanes=len(source.own_lanes),
                block_rows=plan.request.order.block_rows if plan.request.order.shuffle_rows else 1,
            )
            for plan, source in zip(self.sources, self._sources, strict=True)
        )

    def facts(self) -> dict[str, Any]:
        """What ranks must agree on, by name; see `petastore.plan.agreement.facts_of`."""
        groups = self.inventory.num_row_groups
        alike = facts_of(self.request, dataset=self.data_fingerprint, rows=self.num_rows, row_groups=groups)
        return {**alike, **self.recipe()}

    def recipe(self) -> dict[str, Any]:
        """What makes it this mixture of these data: a new dict of JSON values, small."""
        return {
            "weights": list(self.proportions),
            "stop": self.stop,
            "batching": self.batching,
            "orders": [list(source.request.order.as_dict().values()) for source in self.sources],
        }

    def assert_agreed(self, all_gather: AllGather) -> None:
        """Refuses ranks that planned different data; every rank calls it, and every rank raises alike.

        Args:
            all_gather: As for `Plan.assert_agreed`.

        Raises:
            InvalidArgumentError: Ranks planned different data, or two of them the same shard; both sides' facts are
                named.
        """
        assert_agreed(self.facts(), all_gather)

    def spans(self, batch_size: int, *, rows_per_span: int, after: Cursor | None = None) -> Iterator[Span]:
        """This rank's batches from a cursor on, several at a time, through all epochs; see `Plan.spans`."""
        size = whole_number(batch_size, name="batch_size", least=1)
        pace = Pace(rows_per_span, size)
        most_rows = pace.most_rows if self.stop == "cycle" else min(pace.most_rows, self.num_rows)
        batches_of = functools.partial(self._epoch_batches, size)
        return Walk(self._sources, most_rows).epochs(batches_of, pace, after=after or Cursor(), epochs=self.epochs)

    def load_order(self, after: Cursor) -> LoadOrder:
        """Which row groups this rank loads from a cursor on, in order; see `Plan.load_order`.

        Of a source that starts over many times in an epoch, and of an epoch that never ends, some is told at a time.
        None of it is sure: where a source starts over, what is at hand is not loaded again.
        """
        given, line = self._rows_given, self._line
        taken = after.taken if isinstance(after, MixedCursor) else line.counts(after.position)
        rounds = zip(self.sources, self.rows_per_source, strict=True)
        step = min(max(_ROUNDS * source.num_rows * self.num_rows // rows, 1) for source, rows in rounds)
        more = line.counts(min(step, self.num_rows))
        position = after.position + min(step, self.num_rows)
        if position >= (_ENDLESS if self.stop == "cycle" else self.num_rows):
            ends, then = given, after.next_epoch()
        else:
            ends = tuple(before + each for before, each in zip(taken, more, strict=True))
            then = MixedCursor(after.epoch, position, after.first_epoch, ends)
        stretches = [
            Stretch(after.epoch * of_epoch + before, after.epoch * of_epoch + end, each)
            for of_epoch, before, end, each in zip(given, taken, ends, more, strict=True)
        ]
        return dataclasses.replace(load_order(self._sources, stretches, then), sure=0)

    def _epoch_batches(self, batch_size: int, begin: Cursor) -> EpochOfBatches:
        shard = self.request.shard
        if self.batching == "per_source":
            taken = begin.taken if isinstance(begin, MixedCursor) else (0,) * len(self.sources)
            of_sources = self._batches_of_sources(batch_size, self._rows_given, taken)
            return SourceBatches(of_sources, self.proportions, shard, hashed_for=(self.seed, begin.epoch))
        num_rows = _ENDLESS if self.stop == "cycle" else self.num_rows
        batches = self._batches(batch_size, num_rows, begin.position)
        return mixed_batches(self._line, self._lanes_of_sources, self._turns, batches, shard)

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
        """What an epoch of ordinary length falls into; `batch_size` is what a user gave."""
        size = whole_number(batch_size, name="batch_size", least=1)
        if self.batching == "per_source":
            return self._batches_of_sources(size, self.rows_per_source)
        return [self._batches(size, self.num_rows)]

    @once
    def _rows_given(self) -> tuple[int, ...]:
        """Rows that each source gives in an epoch, also where it never ends."""
        return self._line.counts(_ENDLESS) if self.stop == "cycle" else self.rows_per_source

    @once
    def _turns(self) -> list[SourceTurns]:
        """Which lane of each source has its turn when."""
        return [self._turns_of(number, rows) for number, rows in enumerate(self._rows_given)]

    def _turns_of(self, number: int, rows: int) -> SourceTurns:
        lanes = self._lanes_of_source(number)
        turns = lane_of_visit(lanes) if self.batching == "per_source" else self._line.turns(number, lanes)
        return SourceTurns(turns, lanes, rows)

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
        lanes = self._lanes[number]
        return lanes if self.batching == "per_source" else min(lanes, self.request.order.lanes)

    def _own_lanes(self, number: int, shard: Shard) -> range:
        """The lanes of a source that a rank's share comes from."""
        lanes, of_mixture = self._lanes_of_source(number), self.request.order.lanes
        if self.batching == "per_source":
            return lanes_of(shard, lanes)
        shared = lanes_of(shard, of_mixture)
        return range(shared.start * lanes // of_mixture, (shared.stop - 1) * lanes // of_mixture + 1)


def _digest(parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]
