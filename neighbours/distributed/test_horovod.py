"""Tests of the rank in Horovod processes, started by `horovodrun`: from the start, and after an elastic reset."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from petastore.plan.request import Shard
from tests.distributed.launched import ROWS, VARIABLES
from tests.pace import patience

HOROVODRUN = [str(Path(sys.executable).with_name("horovodrun")), "--gloo", "--network-interfaces", "lo"]

SHARED = """
import json, os, sys, warnings
from pathlib import Path
import petastore
from petastore.distributed import all_gather, current_shard, from_horovod

url, out = sys.argv[1], Path(sys.argv[2])

def refused(ask, **environment):
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        return str(ask())
    except petastore.PetastoreError as problem:
        return str(problem)
    finally:
        os.environ.clear()
        os.environ.update(before)

def ids(**asked):
    with petastore.make_reader(url, **asked) as reader:
        return [int(row.id) for row in reader]
"""

WITH_TORCH = """
seen = {"environment": refused(current_shard), "too early": refused(from_horovod)}
import horovod.torch as hvd

mine = hvd.ProcessSet([1])
hvd.init(process_sets=[mine])
seen["live"] = refused(current_shard)
seen["stale"] = refused(current_shard, HOROVOD_RANK="0", HOROVOD_SIZE="1")
seen["conflict"] = refused(current_shard, RANK="0", WORLD_SIZE="1")
seen["set"] = refused(lambda: from_horovod(mine))
seen["unknown set"] = refused(lambda: from_horovod(hvd.ProcessSet([0])))
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    ids()
    seen["warned"] = [f"{each.category.__name__}: {each.message}" for each in warned]
seen["ids"] = ids(cur_shard="auto")
with petastore.make_reader(url, cur_shard="auto", seed=4) as reader:
    reader.plan.assert_agreed(all_gather)
with petastore.make_reader(url, cur_shard="auto", seed=hvd.rank()) as reader:
    seen["differ"] = refused(lambda: reader.plan.assert_agreed(all_gather))

import torch.distributed as dist

dist.init_process_group("gloo", init_method=f"file://{out}/store{hvd.rank()}", rank=0, world_size=1)
seen["two engines"] = refused(current_shard)
dist.destroy_process_group()
(out / str(hvd.rank())).write_text(json.dumps(seen))
hvd.shutdown()
"""


def run(program: str, folder: Path, url: str, *options: str) -> None:
    """Run a program under `horovodrun`, without variables of other launchers."""
    (folder / "program.py").write_text(SHARED + program)
    plain = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    ran = subprocess.run(
        [*HOROVODRUN, *options, sys.executable, str(folder / "program.py"), url, str(folder)],
        env=plain | {"PATH": os.pathsep.join([str(Path(sys.executable).parent), plain["PATH"]])},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(100),
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]


def said_by(folder: Path, rank: int) -> Any:
    return json.loads((folder / str(rank)).read_text())


def test_cur_shard_auto_prefers_the_horovod_api_to_its_variables(tmp_path: Path, numbers: str) -> None:
    run(WITH_TORCH, tmp_path, numbers, "-np", "2")
    ranks = [said_by(tmp_path, rank) for rank in range(2)]
    for rank, seen in enumerate(ranks):
        shard = str(Shard(rank, 2))
        assert seen["environment"] == seen["live"] == seen["stale"] == shard
        assert "hvd.init()" in seen["too early"]
        assert f"horovod.torch says {rank} of 2, but RANK with WORLD_SIZE says 0 of 1" in seen["conflict"]
        assert f"horovod.torch says {rank} of 2, but torch.distributed says 0 of 1" in seen["two engines"]
        (warned,) = seen["warned"]
        assert warned.startswith(f"UnshardedReaderWarning: this process is rank {rank} of 2 (horovod.torch)")
        assert "seed is 0 on rank 0 and 1 on rank 1" in seen["differ"]
        assert "hvd.add_process_set()" in seen["unknown set"]
    assert "process_set must include this rank, got rank 0 and the ranks [1]" in ranks[0]["set"]
    assert ranks[1]["set"] == str(Shard(0, 1))
    assert sorted(ranks[0]["ids"] + ranks[1]["ids"]) == list(range(ROWS))


WITH_TENSORFLOW = """
import horovod.tensorflow as hvd

hvd.init()
seen = {"live": refused(current_shard, HOROVOD_RANK="0", HOROVOD_SIZE="1"), "ids": ids(cur_shard="auto")}
with petastore.make_reader(url, cur_shard=from_horovod(), seed=4) as reader:
    reader.plan.assert_agreed(all_gather)
(out / str(hvd.rank())).write_text(json.dumps(seen))
hvd.shutdown()
"""


def test_from_horovod_works_with_horovod_tensorflow(tmp_path: Path, numbers: str) -> None:
    run(WITH_TENSORFLOW, tmp_path, numbers, "-np", "2")
    ranks = [said_by(tmp_path, rank) for rank in range(2)]
    assert [seen["live"] for seen in ranks] == [str(Shard(rank, 2)) for rank in range(2)]
    assert sorted(ranks[0]["ids"] + ranks[1]["ids"]) == list(range(ROWS))


GROWING = """
import time
import horovod.torch as hvd
import torch

hvd.init()

@hvd.elastic.run
def train(state):
    while hvd.size() == 1:
        (out / "grow").touch()
        time.sleep(0.1)  # a step
        state.commit()
    variables = [os.environ["HOROVOD_RANK"], os.environ["HOROVOD_SIZE"]]
    (out / str(hvd.rank())).write_text(json.dumps([str(current_shard()), ids(cur_shard="auto"), variables]))
    hvd.allreduce(torch.zeros(1))  # nobody ends before the other has written

train(hvd.elastic.TorchState(model=torch.nn.Linear(1, 1)))
"""


@pytest.mark.timeout(240)
def test_from_horovod_is_correct_after_an_elastic_reset(tmp_path: Path, numbers: str) -> None:
    hosts = tmp_path / "hosts.sh"
    hosts.write_text(f"#!/bin/sh\nif [ -e {tmp_path}/grow ]; then echo localhost:2; else echo localhost:1; fi\n")
    hosts.chmod(0o755)
    elastic = ["-np", "1", "--min-np", "1", "--max-np", "2", "--host-discovery-script", str(hosts)]
    run(GROWING, tmp_path, numbers, *elastic)
    first, second = said_by(tmp_path, 0), said_by(tmp_path, 1)
    assert [first[0], second[0]] == [str(Shard(0, 2)), str(Shard(1, 2))]
    assert sorted(first[1] + second[1]) == list(range(ROWS))
    assert ["0", "1"] in (first[2], second[2])  # from the rank that was alone
