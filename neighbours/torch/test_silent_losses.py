"""Tests of trainers that could silently lose or repeat rows, on two ranks: exact rows, or an error with advice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from neighbours.conftest import UNEVEN, Run
from neighbours.torch.programs.gathered import found

pytestmark = pytest.mark.timeout(300)

ALL = list(range(sum(UNEVEN)))
STEPS = -(-len(ALL) // 32)


def on_two_ranks(run: Run, program: str, url: str) -> dict[str, list[Any]]:
    """Return the results of each rank by case."""
    printed = run(["torchrun", "--standalone", "--nproc-per-node=2", f"neighbours/torch/programs/{program}.py", url])
    return found(printed)


def together(ranks: list[list[int]]) -> list[int]:
    return sorted(i for ids in ranks for i in ids)


def test_accelerate_keeps_all_rows_of_a_shard_or_raises(run: Run, numbered: Callable[..., str]) -> None:
    cases = on_two_ranks(run, "prepared_by_accelerate", numbered())
    assert together(cases["reader"]) == ALL
    assert together(cases["reader, each fetches"]) == ALL
    assert together(cases["batch sampler beside a prepared model"]) == ALL
    assert len(together(cases["dataset beside a prepared model"])) == len(ALL) // 32 * 32
    for refused, reason in [
        ("reader that is not sharded", "cur_shard=accelerator.process_index"),
        ("batches of a dataset", "Leave the loader over this ReaderDataset out of prepare"),
        ("batches of a dataset, each fetches", "Leave the loader over this ReaderDataset out of prepare"),
        ("rows of a dataset, each fetches", "Leave the loader over this ReaderDataset out of prepare"),
        ("batch sampler", "Leave the loader over this BlockSampler out of prepare"),
        ("sampler of rows", "Leave the loader over this BlockSampler out of prepare"),
        ("skipping", "resume with its load_state_dict"),
        ("somebody else's loader over ours", "the loader must be iterated instead of `loader.dataset`"),
    ]:
        assert all(reason in said for said in cases[refused]), refused
    # The last accumulated gradients are applied with the last batch, as with Accelerate's own loaders.
    assert cases["stepped"] == [[False] * 3 + [True] + [False] * (STEPS - 5) + [True]] * 2
    assert cases["under way after the loop"] == [False, False]


def test_lightning_reads_each_row_once_per_epoch_or_raises(run: Run, numbered: Callable[..., str]) -> None:
    cases = on_two_ranks(run, "driven_by_lightning", numbered())
    for case in ("reader", "validation"):
        assert [together([epochs[epoch] for epochs in cases[case]]) for epoch in (-2, -1)] == [ALL, ALL], case
    assert together(cases["prediction"]) == ALL
    for epoch in (0, 1):
        sampled = together([epochs[epoch] for epochs in cases["sampler of rows"]])
        assert len(set(sampled)) == len(sampled) == len(ALL) // 2 * 2
    first, second = cases["reader"][0]
    assert first != second
    for rank in cases["dataset"]:
        assert rank["epochs"][0] == rank["epochs"][1]
        assert len(rank["said"]) == 1
        assert "on_train_epoch_start" in rank["said"][0]
    for rank in cases["dataset that is told"]:
        assert rank["epochs"][0] != rank["epochs"][1]
        assert rank["said"] == []
    told = [rank["epochs"] for rank in cases["dataset that is told"]]
    assert [together([epochs[epoch] for epochs in told]) for epoch in (0, 1)] == [ALL, ALL]
    assert all("got 2" in said and "Write make_reader(…, num_epochs=1)" in said for said in cases["two epochs in one"])


def test_reader_made_before_lightning_starts_ranks_warns_of_missing_shards(
    run: Run, numbered: Callable[..., str]
) -> None:
    said = run(["python", "neighbours/torch/programs/started_by_lightning.py", numbered()])
    assert "torch.distributed was initialized with 2 ranks after this loader was made" in said
    assert "cur_shard=self.trainer.global_rank" in said
