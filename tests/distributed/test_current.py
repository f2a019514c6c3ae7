"""A process finds out which rank it is by whatever launcher started it, and says so where nobody can tell."""

from __future__ import annotations

import pytest

from petastore.distributed import current_shard
from petastore.distributed.current import launched_as
from petastore.errors import InvalidArgumentError
from petastore.plan.request import Shard
from tests.distributed.launched import environment_of

LAUNCHERS = ["horovod", "openmpi", "mpich", "torchrun", "slurm", "tensorflow"]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_each_launcher_is_asked(launcher: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment_of(launcher, 2, 3).items():
        monkeypatch.setenv(name, value)
    assert current_shard() == Shard(2, 3)
    claim = launched_as()
    assert claim is not None
    assert claim.shard == Shard(2, 3)


def test_nobody_can_tell_and_the_next_step_is_said() -> None:
    with pytest.raises(InvalidArgumentError, match=r"nobody can tell.*initialise the engine.*shard_count=") as refused:
        current_shard()
    assert all(name in str(refused.value) for name in ("Horovod", "torch.distributed", "JAX", "Ray Train", "Spark"))
    assert launched_as() is None


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_one_process_alone_is_known_to_be_so_and_is_none_of_several(
    launcher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment_of(launcher, 0, 1).items():
        monkeypatch.setenv(name, value)
    assert current_shard() == Shard(0, 1)
    assert launched_as() is None


def test_where_there_is_doubt_asking_fails_and_nothing_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InvalidArgumentError, match="RANK is not"):
        current_shard()
    assert launched_as() is None
    monkeypatch.setenv("RANK", "first")
    assert launched_as() is None
