"""Tests of Ray's `prepare_data_loader`, as the page describes it: no second sharding, one batch ahead of training."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from neighbours.conftest import UNEVEN, Run

ROWS = sum(UNEVEN)

PROGRAM = """
import json, os, sys
from pathlib import Path

os.environ["RAY_worker_niceness"] = "0"  # else whatever runs beside this test goes before the workers
import ray
import ray.train
from ray.train.torch import TorchTrainer

url, out, short = sys.argv[1:]

def train(config):
    import ray.train
    from ray.train.torch import get_device, prepare_data_loader
    from petastore import make_reader
    from petastore.adapters.torch import DataLoader

    def loader_of(**how):
        reader = make_reader(config["url"], ["id"], cur_shard="auto", shuffle_rows=True, seed=5)
        return DataLoader(reader, batch_size=16, **how)

    def interrupted(loader, batches):
        # Trains on all, and keeps the state after three batches; another loader goes on from there.
        trained = []
        for batch in batches:  # one loop: what Ray wraps begins anew whenever it is asked for an iterator
            trained.append(batch["id"].tolist())
            if len(trained) == 3:
                state = loader.state_dict()
        with loader, loader_of() as other:
            other.load_state_dict(state)
            return {"trained": trained, "resumed": [batch["id"].tolist() for batch in other]}

    prepared, by_device = loader_of(), loader_of(device=get_device())
    wrapped = prepare_data_loader(prepared)
    seen = {"has_state": hasattr(wrapped, "state_dict"), "prepared": interrupted(prepared, wrapped)}
    seen["by_device"] = interrupted(by_device, by_device)
    rank = ray.train.get_context().get_world_rank()
    (Path(config["out"]) / f"rank-{rank}").write_text(json.dumps(seen))

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=short, object_store_memory=100 * 2**20)
TorchTrainer(
    train,
    train_loop_config={"url": url, "out": out},
    scaling_config=ray.train.ScalingConfig(num_workers=2, use_gpu=False),
    run_config=ray.train.RunConfig(storage_path=out + "/ray", name="prepared"),
).fit()
ray.shutdown()
"""


@pytest.mark.timeout(300)
def test_ray_prepared_loader_state_is_one_batch_ahead(
    numbered: Callable[..., str], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, run: Run
) -> None:
    """The page recommends the loader's `device=` instead: it also copies ahead, but counts only returned batches."""
    short = tmp_path_factory.mktemp("r")  # contains sockets, whose paths must be short
    run([sys.executable, "-c", PROGRAM, numbered(), tmp_path, short], environment={"RAY_USAGE_STATS_ENABLED": "0"})
    ranks = [json.loads((tmp_path / f"rank-{rank}").read_text()) for rank in range(2)]
    for how in ("prepared", "by_device"):
        batches = [batch for seen in ranks for batch in seen[how]["trained"]]
        assert sorted(itertools.chain(*batches)) == list(range(ROWS))
    for seen in ranks:
        assert seen["by_device"]["resumed"] == seen["by_device"]["trained"][3:]
        assert seen["prepared"]["resumed"] == seen["prepared"]["trained"][4:]  # the fourth batch is lost
        assert not seen["has_state"]  # the wrapper has no state_dict
