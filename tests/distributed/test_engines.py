"""Tests of ranks from frameworks: torch process groups over gloo, device meshes, and frameworks that are missing."""

from __future__ import annotations

import itertools
import re
import sys
from pathlib import Path

import pytest

from petastore.distributed import from_horovod, from_jax, from_ray, from_torch
from petastore.distributed.engines import live_claims
from petastore.errors import InvalidArgumentError
from petastore.plan.request import Shard
from tests.distributed.launched import ROWS, run_ranks
from tests.warm_interpreters import WarmInterpreter

IN_A_GROUP = """
import gc, json, os, sys, warnings
import torch.distributed as dist
import petastore
from petastore.distributed import all_gather, current_shard, from_torch

rank, url, store = int(sys.argv[1]), sys.argv[2], sys.argv[3]

def refused(ask, **environment):
    os.environ.update(environment)
    try:
        return str(ask())
    except petastore.PetastoreError as problem:
        return str(problem)
    finally:
        for name in environment:
            del os.environ[name]

def ids(**asked):
    with petastore.make_reader(url, **asked) as reader:
        return [int(row.id) for row in reader]

seen = {"before": refused(from_torch)}
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    ids()
    ids(cur_shard=0, shard_count=1)
    seen["warned"] = [[type(each.message).__name__, str(each.message), each.filename] for each in warned]
warnings.simplefilter("error")
seen["auto"] = ids(cur_shard="auto")
seen["stale"] = refused(current_shard, RANK="0", WORLD_SIZE="7")
seen["half"] = refused(current_shard, RANK="0")
seen["conflict"] = refused(current_shard, HOROVOD_RANK="0", HOROVOD_SIZE="1")
seen["nodes"] = refused(current_shard, SLURM_PROCID="0", SLURM_NTASKS="1")
last = dist.new_group([1])
seen["group"] = refused(lambda: from_torch(last))
seen["mesh"] = refused(lambda: from_torch(mesh_dim="dp"))
with petastore.make_reader(url, cur_shard="auto", seed=3) as reader:
    reader.plan.assert_agreed(all_gather)
with petastore.make_reader(url, cur_shard="auto", seed=rank) as reader:
    seen["differ"] = refused(lambda: reader.plan.assert_agreed(all_gather))
del last
gc.collect()
dist.destroy_process_group()
print(json.dumps(seen))
"""


def test_from_torch_uses_the_process_group(numbers: str, tmp_path: Path, warm_torch: WarmInterpreter) -> None:
    first, second = run_ranks(IN_A_GROUP, 2, [numbers, str(tmp_path / "store")], interpreter=warm_torch)
    assert sorted(first["auto"] + second["auto"]) == list(range(ROWS))
    for rank, seen in enumerate([first, second]):
        shard = str(Shard(rank, 2))
        assert "init_process_group" in seen["before"]
        # The reader without a shard warned at its line in the program; the one with an explicit shard did not.
        ((name, warning, filename),) = seen["warned"]
        assert (name, filename) == ("UnshardedReaderWarning", "<string>")
        assert f"rank {rank} of 2 (torch.distributed)" in warning
        assert seen["stale"] == seen["half"] == seen["nodes"] == shard
        assert f"torch.distributed says {rank} of 2, but HOROVOD_RANK with HOROVOD_SIZE says 0 of 1" in seen["conflict"]
        assert "mesh must be given" in seen["mesh"]
        assert "seed is 0 on rank 0 and 1 on rank 1" in seen["differ"]
    assert second["group"] == str(Shard(0, 1))
    assert "group must include this rank" in first["group"]


IN_A_MESH = """
import gc, json, os, sys
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
import petastore
from petastore.distributed import from_torch

rank, url, store = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=4)
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))

def asked(**how):
    try:
        shard = from_torch(**how)
    except petastore.PetastoreError as problem:
        return str(problem)
    return [shard.index, shard.count]

with petastore.make_reader(url, cur_shard=from_torch(mesh=mesh, mesh_dim="dp"), seed=5, shuffle_rows=True) as reader:
    ids = [batch["id"].tolist() for batch in reader.iter_batches(4)]
seen = {
    "ids": ids,
    "number": asked(mesh=mesh, mesh_dim=0),
    "part": asked(mesh=mesh["dp"]),
    "both": asked(mesh=mesh, mesh_dim=("dp", "tp")),
    "turned": asked(mesh=mesh, mesh_dim=("tp", "dp")),
    "which": asked(mesh=mesh),
    "unknown": asked(mesh=mesh, mesh_dim="pp"),
    "far": asked(mesh=mesh, mesh_dim=2),
    "twice": asked(mesh=mesh, mesh_dim=("dp", 0)),
    "none": asked(mesh=mesh, mesh_dim=()),
    "group": asked(mesh=mesh, mesh_dim="dp", group=dist.group.WORLD),
}
del mesh
gc.collect()
dist.destroy_process_group()
print(json.dumps(seen))
"""


def test_from_torch_gives_tensor_parallel_peers_the_same_shard(
    numbers: str, tmp_path: Path, warm_torch: WarmInterpreter
) -> None:
    ranks = run_ranks(IN_A_MESH, 4, [numbers, str(tmp_path / "store")], interpreter=warm_torch)
    assert ranks[0]["ids"] == ranks[1]["ids"]
    assert ranks[2]["ids"] == ranks[3]["ids"]
    assert sorted(itertools.chain(*ranks[0]["ids"], *ranks[2]["ids"])) == list(range(ROWS))
    for rank, seen in enumerate(ranks):
        assert seen["number"] == seen["part"] == [rank // 2, 2]
        assert seen["both"] == [rank, 4]
        assert seen["turned"] == [rank % 2 * 2 + rank // 2, 4]
        for refusal in ("which", "unknown", "far", "twice", "none"):
            assert "mesh_dim must " in seen[refusal]
            assert re.search("dp.*tp", seen[refusal])
        assert "group and mesh must not both be given" in seen["group"]


OTHER_NUMBERS = """
import json, sys, warnings
import torch.distributed as dist
import petastore
from petastore.adapters.torch import ReaderDataset
from petastore.distributed import Shard
from petastore.spark import make_spark_converter

rank, url, store = int(sys.argv[1]), sys.argv[2], sys.argv[3]

def warned(read, **asked):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        read(url, **asked)
    return [[each.category.__name__, str(each.message), each.filename] for each in told]

def opened(url, **asked):
    with petastore.make_reader(url, **asked):
        pass

def in_batches(url, **asked):
    with petastore.make_batch_reader(url, **asked):
        pass

def dataset(url, **asked):
    ReaderDataset(url, batch_size=5, **asked)

def converted(url, **asked):
    with make_spark_converter(url).make_torch_dataloader(batch_size=5, num_epochs=1, **asked):
        pass

local = {"cur_shard": rank % 2, "shard_count": 4}  # two hosts of two ranks
seen = {"before": warned(opened, **local)}
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=4)
seen |= {
    "local": [warned(read, **local) for read in (opened, in_batches, dataset)],
    "converted": warned(converted, **local),
    "more": warned(opened, cur_shard=rank, shard_count=8),
    "meant": [
        *warned(opened, cur_shard=Shard(rank % 2, 4)),
        *warned(opened, cur_shard="auto"),
        *warned(opened, cur_shard=rank, shard_count=4),
        *warned(opened, cur_shard=rank // 2, shard_count=2),  # the outer dimension of a mesh
        *warned(opened, cur_shard=rank % 2, shard_count=2),  # its inner one
        *warned(opened, cur_shard=0, shard_count=1),
    ],
}
dist.destroy_process_group()
seen["after"] = warned(opened, **local)
print(json.dumps(seen))
"""


def test_shard_that_differs_from_the_rank_warns(numbers: str, tmp_path: Path, warm_torch: WarmInterpreter) -> None:
    """A common mistake is `hvd.local_rank()` with `hvd.size()`, which on the first host is still correct."""
    ranks = run_ranks(OTHER_NUMBERS, 4, [numbers, str(tmp_path / "store")], interpreter=warm_torch)
    for rank, seen in enumerate(ranks):
        assert seen["before"] == seen["meant"] == seen["after"] == []
        ((category, more, filename),) = seen["more"]
        assert (category, filename) == ("UserWarning", "<string>")
        assert f"cur_shard={rank}, shard_count=8 were given, but torch.distributed says {rank} of 4" in more
        if rank < 2:
            assert seen["local"] == [[], [], []]
            assert seen["converted"] == []
            continue
        ((_, by_the_converter, _),) = seen["converted"]
        assert f"rank {rank} of 4 (torch.distributed), but cur_shard={rank - 2} and shard_count=4" in by_the_converter
        for told in seen["local"]:
            ((category, message, filename),) = told
            assert (category, filename) == ("UserWarning", "<string>")
            assert f"cur_shard={rank - 2}, shard_count=4 were given, but torch.distributed says {rank} of 4" in message
            assert 'cur_shard="auto"' in message
            assert f"petastore.distributed.Shard({rank - 2}, 4), which is not checked" in message


def test_current_shard_imports_no_framework() -> None:
    program = (
        "import sys, json; from petastore import distributed\n"
        "from petastore.distributed.current import launched_as\n"
        "before = set(sys.modules)\n"
        "launched_as()\n"
        "try: distributed.current_shard()\n"
        "except ValueError: print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    assert run_ranks(program, 1, []) == [[]]


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (from_horovod, "hvd.init()"),
        (from_ray, "inside the function that the trainer runs"),
        (from_jax, "Import jax"),
        (from_torch, "init_process_group"),
    ],
)
def test_missing_framework_raises_with_advice(ask: object, said: str) -> None:
    assert not {"horovod.torch", "horovod.tensorflow", "jax", "ray"} & set(sys.modules)
    assert live_claims() == []
    with pytest.raises(InvalidArgumentError, match=re.escape(said)):
        ask()  # type: ignore[operator]
