"""Ranks that come into being after a loader was made: two real ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import petastore
from petastore.adapters.torch.ranks import ranks_known
from tests.pace import patience

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
        assert "has 2 ranks, which it had not when this loader was made" in message, message
    assert said(sharded) == []
    assert said(DataLoader(all_rows, 4)) == []  # of what is opened now, make_reader speaks
dist.destroy_process_group()
"""


def test_who_reads_all_rows_on_ranks_that_were_not_there_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    url = str(tmp_path / "rows")
    schema = petastore.Unischema("rows", [petastore.UnischemaField("id", "int64")])
    petastore.write_dataset(url, schema, [{"id": i} for i in range(10)])
    command = [sys.executable, "-c", RANK, url, str(tmp_path / "store")]
    ranks = [
        subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for rank in range(2)
    ]
    try:
        printed = [rank.communicate(timeout=patience(60))[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert [rank.returncode for rank in ranks] == [0, 0], printed


def test_a_launcher_is_known_before_torch_is_initialised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert ranks_known() == 1  # ranks that Lightning starts have no more than that, and their readers do not warn
    monkeypatch.setenv("RANK", "0")
    assert ranks_known() == 4
    monkeypatch.setenv("WORLD_SIZE", "many")
    assert ranks_known() == 1
