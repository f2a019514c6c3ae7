"""Tests of rank detection from several sources: equal ranks are accepted, different ones raise and name both."""

from __future__ import annotations

import itertools

import pytest

from petastore.distributed.environment import Claim, agreed
from petastore.errors import InvalidArgumentError
from petastore.plan.request import Shard

ALONE = Claim(Shard(0, 1), "Horovod")
SECOND = Claim(Shard(1, 2), "torch.distributed")


def test_rank_is_none_when_no_launcher_or_framework_gives_one() -> None:
    assert agreed([]) is None


def test_equal_ranks_from_two_sources_give_the_rank() -> None:
    assert agreed([SECOND, Claim(Shard(1, 2), "RANK with WORLD_SIZE")]) == Shard(1, 2)


@pytest.mark.parametrize(("first", "second"), [(ALONE, SECOND), (SECOND, ALONE), (SECOND, Claim(Shard(0, 2), "Ray"))])
def test_different_ranks_from_two_sources_raise_and_name_both(first: Claim, second: Claim) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        agreed([first, first, second])
    assert str(first) in str(refused.value)
    assert str(second) in str(refused.value)
    assert "cur_shard=" in str(refused.value)


def test_outer_launcher_is_used_without_an_inner_one() -> None:
    assert agreed([], Claim(Shard(2, 3), "srun")) == Shard(2, 3)
    assert agreed([SECOND], Claim(Shard(0, 4), "srun")) == Shard(1, 2)


def test_single_process_ranks_in_several_slurm_tasks_raise() -> None:
    with pytest.raises(InvalidArgumentError, match="Horovod says 0 of 1, but srun says 1 of 2"):
        agreed([ALONE], Claim(Shard(1, 2), "srun"))


@pytest.mark.parametrize(("replicas", "shards", "peers"), list(itertools.product([1, 2, 3], [1, 2, 4], [1, 2, 3])))
def test_shard_of_any_mesh_dimension_gives_no_warning(replicas: int, shards: int, peers: int) -> None:
    places = itertools.product(range(replicas), range(shards), range(peers))
    for rank, (_, shard, _) in enumerate(places):
        assert Claim(Shard(rank, replicas * shards * peers), "an engine").allows(Shard(shard, shards))


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6, 8])
def test_shard_that_does_not_match_the_rank_warns(
    ranks: int,
) -> None:
    for rank in range(ranks):
        claim = Claim(Shard(rank, ranks), "an engine")
        assert [index for index in range(ranks) if claim.allows(Shard(index, ranks))] == [rank]
        for count in set(range(1, 2 * ranks + 1)) - {count for count in range(1, ranks + 1) if ranks % count == 0}:
            assert not any(claim.allows(Shard(index, count)) for index in range(count))
