"""Tests of the rank in Ray Train workers: read from Ray's context; the driver has no rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from petastore.plan.request import Shard
from tests.distributed.launched import ROWS, run_ranks

PROGRAM = """
import json, os, sys
from pathlib import Path

os.environ["RAY_TRAIN_V2_ENABLED"] = sys.argv[4]
os.environ["RAY_worker_niceness"] = "0"  # else whatever runs beside this test goes before the workers
# What started the daemons says nothing of the workers.
os.environ |= {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "3"}
import ray
import ray.train
from ray.train.torch import TorchTrainer
import petastore
from petastore.distributed import from_ray

url, out = sys.argv[2], Path(sys.argv[3])

def train(config):
    import ray.train
    import torch.distributed
    import petastore
    from petastore.distributed import all_gather, current_shard, from_ray, from_torch

    shard = from_ray()
    assert shard == current_shard() == from_torch()
    with petastore.make_reader(config["url"], cur_shard="auto") as reader:
        reader.plan.assert_agreed(all_gather)
        ids = [int(row.id) for row in reader]
    rank = ray.train.get_context().get_world_rank()
    (Path(config["out"]) / f"rank-{rank}").write_text(json.dumps([str(shard), ids]))

try:
    from_ray()
except petastore.PetastoreError as problem:
    outside = str(problem)
ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, _temp_dir=sys.argv[5])
trainer = TorchTrainer(
    train,
    train_loop_config={"url": url, "out": str(out)},
    scaling_config=ray.train.ScalingConfig(num_workers=2, use_gpu=False),
    run_config=ray.train.RunConfig(storage_path=str(out / "ray"), name="who"),
)
trainer.fit()
ray.shutdown()
print(json.dumps([outside, *(json.loads((out / f"rank-{rank}").read_text()) for rank in range(2))]))
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", ["0", "1"])
def test_ray_train_workers_share_the_rows(
    version: str, numbers: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    short = tmp_path_factory.mktemp("r")  # contains sockets, whose paths must be short
    ((outside, first, second),) = run_ranks(PROGRAM, 1, [numbers, str(tmp_path), version, str(short)], seconds=120)
    assert "not a Ray Train worker. Open the reader inside the function that the trainer runs" in outside
    assert [first[0], second[0]] == [str(Shard(0, 2)), str(Shard(1, 2))]
    assert sorted(first[1] + second[1]) == list(range(ROWS))
