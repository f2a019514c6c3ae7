"""Tests of rank detection in torch, with two real ranks that are initialized after a loader was created."""

from __future__ import annotations

from pathlib import Path

import pytest

import petastore
from petastore.adapters.torch.ranks import ranks_known
from tests.warm_interpreters import WarmInterpreter, run_together

RANK = """
import sys, warnings
import torch.distributed as dist
import petastore
from petastore.adapters.torch import DataLoader, ReaderDataset
from petastore.adapters.torch.ranks import ranks_known

url, store, rank = sys.argv[1], sys.argv[2], int(sys.argv[3])

def said(loader):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert sum(len(batch["id"]) for batch in loader) > 0
    return [str(one.message) for one in caught if one.filename == "<string>" or "torch/utils/data" in one.filename]

with petastore.make_reader(url) as all_rows, petastore.make_reader(url, cur_shard=rank, shard_count=2) as some:
    early, early_dataset, sharded = DataLoader(all_rows, 4), ReaderDataset(url, batch_size=4), DataLoader(some, 4)
    assert ranks_known() == 1
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    assert ranks_known() == 2
    for warned in (early, early_dataset):
        (message,) = said(warned)
        assert "was initialized with 2 ranks after this loader was made" in message, message
    assert said(sharded) == []
    assert said(DataLoader(all_rows, 4)) == []  # of what is opened now, make_reader speaks
dist.destroy_process_group()
"""


def test_loader_made_before_init_process_group_warns_of_unsharded_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm_torch: WarmInterpreter
) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    url = str(tmp_path / "rows")
    schema = petastore.Unischema("rows", [petastore.UnischemaField("id", "int64")])
    petastore.write_dataset(url, schema, [{"id": i} for i in range(10)])
    run_together([warm_torch.start(RANK, url, tmp_path / "store", rank) for rank in range(2)])


def test_launcher_rank_is_detected_before_init_process_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert ranks_known() == 1  # Lightning's ranks have only WORLD_SIZE here, and their readers do not warn
    monkeypatch.setenv("RANK", "0")
    assert ranks_known() == 4
    monkeypatch.setenv("WORLD_SIZE", "many")
    assert ranks_known() == 1
