"""Tests of samplers: the epoch after a loaded state, set_epoch, and rank and world size of torch.distributed."""

from __future__ import annotations

import pytest
import torch

from petastore.adapters.epoch_tracker import EpochNumbers
from petastore.adapters.torch.ranks import refuse_unequal_rows, shard_of_this_process
from petastore.adapters.torch.shared_state import SamplingPass, pass_in_epoch
from petastore.errors import InvalidArgumentError
from petastore.inventory import Inventory
from petastore.plan.cursor import Cursor
from petastore.plan.plan import Plan
from petastore.plan.request import LastBatch, Order, ReadRequest, Shard


@pytest.mark.parametrize("epoch", [2, 4])
def test_sampler_state_resumes_when_set_epoch_matches_its_epoch(epoch: int) -> None:
    loaded = SamplingPass(Cursor(4, 17, 2), 5, is_loaded=True)
    assert pass_in_epoch(EpochNumbers(), loaded, epoch) == (
        epoch,
        SamplingPass(Cursor(4, 17, epoch), 5, is_loaded=True),
    )


@pytest.mark.parametrize("this_pass", [None, SamplingPass(Cursor(4, 17, 2), 5)])
def test_sampler_starts_a_new_epoch_without_a_loaded_state(this_pass: SamplingPass | None) -> None:
    assert pass_in_epoch(EpochNumbers(), this_pass, 4) == (4, None)


@pytest.mark.parametrize("epoch", [-1, 1.5, True])
def test_set_epoch_raises_for_an_invalid_epoch(epoch: int) -> None:
    with pytest.raises(InvalidArgumentError, match=f"epoch must be an int of at least 0, got {epoch}"):
        pass_in_epoch(EpochNumbers(), None, epoch)


def test_sampler_rank_defaults_to_torch_distributed_or_0(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert shard_of_this_process(None, None) == Shard()
    assert shard_of_this_process(3, 1) == Shard(1, 3)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 2)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)
    assert shard_of_this_process(None, None) == Shard(2, 4)
    assert shard_of_this_process(3, 1) == Shard(1, 3)


@pytest.mark.parametrize(("num_replicas", "rank"), [(2, None), (None, 0)])
def test_sampler_rank_without_num_replicas_raises(num_replicas: int | None, rank: int | None) -> None:
    with pytest.raises(
        InvalidArgumentError,
        match=rf"together, got num_replicas={num_replicas} and rank={rank}\. Give both, or neither",
    ):
        shard_of_this_process(num_replicas, rank)


def test_sampler_raises_if_world_size_is_set_without_torch_distributed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(
        InvalidArgumentError,
        match=r"torch\.distributed must be initialized, because WORLD_SIZE is 2, and the rank is unknown\. Call",
    ):
        shard_of_this_process(None, None)
    assert shard_of_this_process(2, 1) == Shard(1, 2)


@pytest.mark.parametrize(
    ("rows", "ranks", "last_batch"), [(10, 2, LastBatch.EVEN), (11, 1, LastBatch.EVEN), (11, 2, LastBatch.WRAP)]
)
def test_sampling_without_batch_size_is_allowed_if_rows_divide_among_ranks(
    rows: int, ranks: int, last_batch: LastBatch
) -> None:
    order = Order(seed=0, shuffle_row_groups=False, shuffle_rows=False, lanes=ranks, block_rows=1)
    refuse_unequal_rows(Plan(Inventory.of_rows([rows]), ReadRequest(("id",), order, Shard(0, ranks), 1, last_batch)))


def test_sampling_without_batch_size_raises_if_ranks_get_unequal_rows() -> None:
    order = Order(seed=0, shuffle_row_groups=False, shuffle_rows=False, lanes=2, block_rows=1)
    with pytest.raises(
        InvalidArgumentError,
        match="batch_size must be given where 11 rows do not divide equally among 2 ranks: a rank with one",
    ):
        refuse_unequal_rows(Plan(Inventory.of_rows([11]), ReadRequest(("id",), order, Shard(0, 2))))
