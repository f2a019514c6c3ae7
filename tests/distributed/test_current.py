"""Tests of `current_shard`: the rank of each launcher is detected, and an unknown rank raises with advice."""

from __future__ import annotations

import pytest

from petastore.distributed import current_shard
from petastore.distributed.current import launched_as
from petastore.errors import InvalidArgumentError
from petastore.plan.request import Shard
from tests.distributed.launched import environment_of

LAUNCHERS = ["horovod", "openmpi", "mpich", "torchrun", "slurm", "tensorflow"]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_current_shard_detects_each_launcher(launcher: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment_of(launcher, 2, 3).items():
        monkeypatch.setenv(name, value)
    assert current_shard() == Shard(2, 3)
    claim = launched_as()
    assert claim is not None
    assert claim.shard == Shard(2, 3)


def test_current_shard_raises_with_advice_when_no_rank_is_known() -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"rank of this process is unknown.*Initialize the framework.*shard_count="
    ) as refused:
        current_shard()
    assert all(name in str(refused.value) for name in ("Horovod", "torch.distributed", "JAX", "Ray Train", "Spark"))
    assert launched_as() is None


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_single_process_is_not_one_of_several_ranks(launcher: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment_of(launcher, 0, 1).items():
        monkeypatch.setenv(name, value)
    assert current_shard() == Shard(0, 1)
    assert launched_as() is None


def test_ambiguous_rank_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(
        InvalidArgumentError,
        match=r"RANK must be set with WORLD_SIZE, because both are needed for the rank\. Open the reader after",
    ):
        current_shard()
    assert launched_as() is None
    monkeypatch.setenv("RANK", "first")
    assert launched_as() is None
