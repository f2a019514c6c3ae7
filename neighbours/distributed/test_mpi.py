"""Tests of the rank in MPI processes, started by `mpiexec`: read from its environment variables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from neighbours.conftest import Run
from tests.distributed.launched import ROWS

PROGRAM = """
import json, os, sys
from pathlib import Path
import petastore
from petastore.distributed import current_shard

url, out = sys.argv[1], Path(sys.argv[2])
said = {"without": [name for name in ("RANK", "HOROVOD_RANK", "SLURM_PROCID") if name in os.environ]}
with petastore.make_reader(url, cur_shard="auto", shuffle_rows=True, seed=5) as reader:
    said["steps"] = reader.steps_per_epoch(4)
    said["ids"] = [number for batch in reader.iter_batches(4) for number in batch["id"].tolist()]
from mpi4py import MPI

said["mpi"] = [MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size]
shard = current_shard()
said["shard"] = [shard.index, shard.count]
(out / f"{shard.index}.json").write_text(json.dumps(said))
"""


@pytest.mark.parametrize("ranks", [2, 3])
def test_mpiexec_ranks_read_each_row_once(run: Run, numbers: str, tmp_path: Path, ranks: int) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    run(["mpiexec", "-n", str(ranks), "python", program, numbers, tmp_path])
    said = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(ranks)]
    assert (
        [each["shard"] for each in said] == [each["mpi"] for each in said] == [[rank, ranks] for rank in range(ranks)]
    )
    assert [each["without"] for each in said] == [[]] * ranks
    assert sorted(number for each in said for number in each["ids"]) == list(range(ROWS))
    assert len({each["steps"] for each in said}) == 1
