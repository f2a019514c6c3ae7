"""Tests of the rank in JAX processes: known before JAX's backend starts, and gathering facts afterwards."""

from __future__ import annotations

import socket

from petastore.plan.request import Shard
from tests.distributed.launched import ROWS, run_ranks

PROGRAM = """
import json, os, sys
os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import petastore
from petastore.distributed import all_gather, current_shard, from_jax

rank, url, port = int(sys.argv[1]), sys.argv[2], sys.argv[3]
seen = {}
try:
    current_shard()
except petastore.PetastoreError as problem:
    seen["before"] = str(problem)
jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=2, process_id=rank)
seen["shards"] = [str(current_shard()), str(from_jax())]
with petastore.make_reader(url, cur_shard="auto", seed=4) as reader:
    seen["ids"] = [int(row.id) for row in reader]
    seen["backend"] = jax._src.xla_bridge.backends_are_initialized()
    reader.plan.assert_agreed(all_gather)
seen["ranks"] = [jax.process_index(), jax.process_count()]
with petastore.make_reader(url, cur_shard="auto", seed=rank) as reader:
    try:
        reader.plan.assert_agreed(all_gather)
    except petastore.PetastoreError as problem:
        seen["differ"] = str(problem)
gathered = all_gather({"rank": rank, "long": "x" * (rank * 1000)})
seen["gathered"] = [[facts["rank"], len(facts["long"])] for facts in gathered]
print(json.dumps(seen))
"""


def free_port() -> int:
    """Return a port on which no process listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_jax_processes_share_the_rows_and_agree(numbers: str) -> None:
    ranks = run_ranks(PROGRAM, 2, [numbers, str(free_port())])
    for rank, seen in enumerate(ranks):
        assert "the rank of this process is unknown" in seen["before"]
        assert seen["shards"] == [str(Shard(rank, 2))] * 2
        assert seen["ranks"] == [rank, 2]
        assert seen["backend"] is False
        assert "seed is 0 on rank 0 and 1 on rank 1" in seen["differ"]
        assert seen["gathered"] == [[0, 0], [1, 1000]]
    assert sorted(ranks[0]["ids"] + ranks[1]["ids"]) == list(range(ROWS))


def test_from_jax_returns_rank_0_of_1_in_a_single_process() -> None:
    program = "import json, jax; from petastore.distributed import from_jax; print(json.dumps(str(from_jax())))"
    assert run_ranks(program, 1, []) == [str(Shard(0, 1))]
