"""Tests of rows of mixtures looked up by runs of lanes: equal to looking up each position."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from petastore.plan.batches.epoch_batches import lanes_of
from petastore.plan.mixture.mixed_batches import LanesOfSources, SourceRuns
from petastore.plan.mixture.mixed_line import SourceTurns, mixed_line
from petastore.plan.order.visits import LaneRuns
from petastore.plan.request import Shard

LANES = [1, 2, 3, 6, 12]
shapes = st.lists(st.tuples(st.integers(1, 7), st.sampled_from(LANES)), min_size=1, max_size=5)


def with_ranks(shape: list[tuple[int, int]]) -> st.SearchStrategy[tuple[list[tuple[int, int]], int]]:
    """Draw a number of ranks that divides the lanes of each source, and return it with the weights and lanes."""
    fitting = [count for count in (1, 2, 3) if not any(lanes % count for _, lanes in shape)]
    return st.tuples(st.just(shape), st.sampled_from(fitting))


batches = st.lists(st.integers(1, 900), min_size=1, max_size=4)


@given(shapes.flatmap(with_ranks), st.integers(0, 20_000), batches, st.integers(0, 2))
def test_mixture_rows_looked_up_by_runs_equal_those_looked_up_one_by_one(
    drawn: tuple[list[tuple[int, int]], int], first: int, sizes: list[int], rank: int
) -> None:
    """Each row's source, lane and number of earlier turns of that lane are compared."""
    shape, ranks = drawn
    weights, lanes = [weight for weight, _ in shape], [count for _, count in shape]
    line = mixed_line(tuple(weights), 12, 3)
    found = LanesOfSources(line, lanes)
    own = lanes_of(Shard(rank % ranks, ranks), 12)
    assert found.own_of(own) is not None
    borders = first + np.cumsum([0, *sizes])
    runs, _ = LaneRuns.between(borders, lanes=12, own=own)
    parts = found.between(runs, int(borders[0]), int(borders[-1]))
    sources, places = line.at(runs.positions())
    turns = [SourceTurns(line.turns(source, count), count, 10**9) for source, count in enumerate(lanes)]
    covered = np.zeros(len(sources), dtype=np.int64)
    for part in parts:
        targets = put(part)
        covered[targets] += 1
        lane = np.repeat(np.array(part.own), part.stops - part.firsts)
        turn = np.concatenate([np.arange(*run) for run in zip(part.firsts, part.stops, strict=True)])
        assert (sources[targets] == part.source).all()
        assert [array.tolist() for array in turns[part.source].at(places[targets])] == [lane.tolist(), turn.tolist()]
        given_before = line.counts_at(borders[[0, -1]])[:, part.source].tolist()
        assert [part.places.start, part.places.stop] == given_before
    assert (covered == 1).all()


def test_mixture_ranks_have_their_own_lanes_only_if_ranks_divide_all_lanes() -> None:
    for ranks, lanes in itertools.product([2, 3], itertools.product(LANES, repeat=2)):
        found = LanesOfSources(mixed_line((1, 1), 12, 3), lanes)
        is_known = found.own_of(lanes_of(Shard(0, ranks), 12)) is not None
        assert is_known == (not any(count % ranks for count in lanes)), (ranks, lanes)


def put(part: SourceRuns) -> np.ndarray:
    targets = np.empty(int((part.stops - part.firsts).sum()), dtype=np.int64)
    part.put_targets(part.firsts, part.stops, targets)
    return targets
