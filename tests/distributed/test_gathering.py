"""Tests of `all_gather` and `assert_agreed`: ranks over gloo that planned different data all raise."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore.distributed import (
    all_gather,
    barrier_all_gather,
    horovod_all_gather,
    jax_all_gather,
    torch_all_gather,
)
from petastore.errors import InvalidArgumentError, MissingExtraError
from tests.warm_interpreters import WarmInterpreter, run_together

RANK = """
import sys
import torch.distributed
import petastore
from petastore.distributed import torch_all_gather

url, store, rank, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
with petastore.make_reader(url, seed=seed, cur_shard=rank, shard_count=2) as reader:
    try:
        reader.plan.assert_agreed(torch_all_gather)
        print("agreed")
    except petastore.PetastoreError as problem:
        print(problem)
torch.distributed.destroy_process_group()
"""


@pytest.mark.parametrize(("seeds", "said"), [((3, 3), "agreed"), ((3, 4), "seed is 3 on rank 0 and 4 on rank 1")])
def test_torch_ranks_agree_or_all_raise(
    tmp_path: Path, warm_torch: WarmInterpreter, seeds: tuple[int, int], said: str
) -> None:
    pq.write_table(pa.table({"id": range(10)}), tmp_path / "part.parquet")
    ranks = [warm_torch.start(RANK, tmp_path, tmp_path / "_store", rank, seed) for rank, seed in enumerate(seeds)]
    for out, _ in run_together(ranks):
        assert said in out


def test_torch_all_gather_raises_without_a_process_group() -> None:
    with pytest.raises(InvalidArgumentError, match="init_process_group"):
        torch_all_gather({})


def test_horovod_all_gather_raises_without_horovod() -> None:
    with pytest.raises(InvalidArgumentError, match="Horovod"):
        horovod_all_gather({})


def test_jax_and_barrier_all_gather_raise_outside_of_them() -> None:
    with pytest.raises(MissingExtraError, match="jax"):
        jax_all_gather({})
    with pytest.raises(InvalidArgumentError, match="barrier task"):
        barrier_all_gather({})


def test_all_gather_raises_without_a_framework() -> None:
    with pytest.raises(InvalidArgumentError, match=r"init_process_group\(\)"):
        all_gather({})
