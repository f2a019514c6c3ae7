"""Launchers say in the environment which rank a process is; a shard that disagrees is warned about."""

from __future__ import annotations

import warnings

import pytest

from petastore.spark.caching.ranks import rank_in_environment, warn_of_other_shard

VARIABLES = [
    (f"{name}_RANK", f"{name}_SIZE") for name in ("HOROVOD", "OMPI_COMM_WORLD", "PMI")
] + [("RANK", "WORLD_SIZE")]  # fmt: skip


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for pair in VARIABLES:
        for name in pair:
            monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(("rank", "size"), VARIABLES)
def test_each_launcher_is_known(monkeypatch: pytest.MonkeyPatch, rank: str, size: str) -> None:
    monkeypatch.setenv(rank, "3")
    monkeypatch.setenv(size, "8")
    assert rank_in_environment() == (3, 8, rank)
    with pytest.warns(UserWarning, match=f"rank 3 of 8 \\({rank}\\).*give cur_shard=3, shard_count=8"):
        warn_of_other_shard(2, 8)


def test_the_first_launcher_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    for number, (rank, size) in enumerate(VARIABLES):
        monkeypatch.setenv(rank, str(number))
        monkeypatch.setenv(size, "9")
    assert rank_in_environment() == (0, 9, "HOROVOD_RANK")


def test_half_a_pair_or_no_number_is_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("HOROVOD_RANK", "one")
    monkeypatch.setenv("HOROVOD_SIZE", "two")
    assert rank_in_environment() is None


@pytest.mark.parametrize(
    ("rank", "size", "asked"),
    [
        ("1", "2", (1, 2)),
        ("0", "1", (None, None)),
        ("0", "1", (0, 1)),
        (None, None, (5, 7)),
        (None, None, (None, None)),
    ],
)
def test_an_agreeing_shard_is_not_warned_about(
    monkeypatch: pytest.MonkeyPatch, rank: str | None, size: str | None, asked: tuple[int | None, int | None]
) -> None:
    if rank is not None and size is not None:
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("WORLD_SIZE", size)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_other_shard(*asked)


def test_no_shard_on_one_of_many_ranks_is_warned_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_RANK", "0")
    monkeypatch.setenv("HOROVOD_SIZE", "2")
    with pytest.warns(UserWarning, match="every rank reads all rows"):
        warn_of_other_shard(None, None)
