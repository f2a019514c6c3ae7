"""Tests of the warning about a converter loader whose shard is not the rank of the process."""

from __future__ import annotations

import warnings

import pytest

from petastore.distributed.current import warn_of_other_shard
from petastore.plan.request import Shard
from tests.distributed.launched import VARIABLES, environment_of


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("launcher", ["horovod", "openmpi", "mpich", "torchrun", "slurm", "tensorflow"])
def test_converter_shard_of_another_rank_warns(launcher: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment_of(launcher, 3, 8).items():
        monkeypatch.setenv(name, value)
    with pytest.warns(UserWarning, match='rank 3 of 8 .*cur_shard=2 and shard_count=8.*Pass cur_shard="auto"'):
        warn_of_other_shard(Shard(2, 8))


@pytest.mark.parametrize(
    ("launched", "asked"), [((1, 2), (1, 2)), ((1, 2), (0, 1)), ((0, 1), (0, 1)), ((0, 1), (1, 2)), (None, (5, 7))]
)
def test_converter_shard_that_can_be_right_gives_no_warning(
    launched: tuple[int, int] | None, asked: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment_of("torchrun", *launched).items() if launched else ():
        monkeypatch.setenv(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_other_shard(Shard(*asked))
