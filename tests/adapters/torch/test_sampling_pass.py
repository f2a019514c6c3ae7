"""Passes of samplers and datasets: which one follows, and which rank it is for."""

from __future__ import annotations

import pytest
import torch

from petastore.adapters.told_epochs import ToldEpochs
from petastore.adapters.torch.sampling_pass import Pass, refuse_unequal_rows, shard_of_this_process, told
from petastore.errors import InvalidArgumentError
from petastore.inventory import Inventory
from petastore.plan.cursor import Cursor
from petastore.plan.plan import Plan
from petastore.plan.request import Order, ReadRequest, Shard, Tail


@pytest.mark.parametrize("epoch", [2, 4])
def test_a_loaded_pass_is_gone_on_with_in_its_first_epoch_and_in_the_one_that_it_stands_in(epoch: int) -> None:
    loaded = Pass(Cursor(4, 17, 2), 5, is_loaded=True)
    assert told(ToldEpochs(), loaded, epoch) == (epoch, Pass(Cursor(4, 17, epoch), 5, is_loaded=True))


@pytest.mark.parametrize("this_pass", [None, Pass(Cursor(4, 17, 2), 5)])
def test_new_pass_begins_when_no_state_was_loaded(this_pass: Pass | None) -> None:
    assert told(ToldEpochs(), this_pass, 4) == (4, None)


@pytest.mark.parametrize("epoch", [-1, 1.5, True])
def test_what_is_no_epoch_is_refused(epoch: int) -> None:
    with pytest.raises(InvalidArgumentError, match="epoch="):
        told(ToldEpochs(), None, epoch)


def test_the_rank_is_what_is_given_or_that_of_torch_distributed_or_the_only_one(
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
def test_half_a_rank_is_refused(num_replicas: int | None, rank: int | None) -> None:
    with pytest.raises(InvalidArgumentError, match="give both, or neither"):
        shard_of_this_process(num_replicas, rank)


def test_ranks_that_do_not_know_which_they_are_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InvalidArgumentError, match=r"WORLD_SIZE is 2, but torch.distributed is not initialised"):
        shard_of_this_process(None, None)
    assert shard_of_this_process(2, 1) == Shard(1, 2)


@pytest.mark.parametrize(("rows", "ranks", "last_batch"), [(10, 2, Tail.EVEN), (11, 1, Tail.EVEN), (11, 2, Tail.WRAP)])
def test_rows_that_ranks_share_equally_are_given_one_by_one(rows: int, ranks: int, last_batch: Tail) -> None:
    order = Order(seed=0, shuffle_row_groups=False, shuffle_rows=False, lanes=ranks, block_rows=1)
    refuse_unequal_rows(Plan(Inventory.of_rows([rows]), ReadRequest(("id",), order, Shard(0, ranks), 1, last_batch)))


def test_rows_of_which_one_rank_would_have_more_are_refused() -> None:
    order = Order(seed=0, shuffle_row_groups=False, shuffle_rows=False, lanes=2, block_rows=1)
    with pytest.raises(InvalidArgumentError, match="11 rows cannot be shared equally, row by row, by 2 ranks"):
        refuse_unequal_rows(Plan(Inventory.of_rows([11]), ReadRequest(("id",), order, Shard(0, 2))))
