"""Start ranks for tests: environment variables of launchers, and programs that run as several ranks at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from tests.pace import patience
from tests.warm_interpreters import WarmInterpreter, run_together

__all__ = ["ROWS", "VARIABLES", "environment_of", "run_ranks"]

ROWS = 53

_PAIRS = {
    "horovod": ("HOROVOD_RANK", "HOROVOD_SIZE"),
    "openmpi": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    "mpich": ("PMI_RANK", "PMI_SIZE"),
    "torchrun": ("RANK", "WORLD_SIZE"),
    "slurm": ("SLURM_PROCID", "SLURM_NTASKS"),
}
VARIABLES = (
    *(name for pair in _PAIRS.values() for name in pair),
    *("TF_CONFIG", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NUM_TASKS"),
)


def environment_of(launcher: str, rank: int, ranks: int) -> dict[str, str]:
    """Return the variables that a launcher sets for a rank: horovod, openmpi, mpich, torchrun, slurm or tensorflow."""
    if launcher == "tensorflow":
        cluster = {"worker": [f"host{number}:2222" for number in range(ranks)]}
        return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank}})}
    step = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": str(ranks)}
    rank_name, ranks_name = _PAIRS[launcher]
    return {rank_name: str(rank), ranks_name: str(ranks), **(step if launcher == "slurm" else {})}


def run_ranks(
    program: str,
    ranks: int,
    arguments: Sequence[str],
    *,
    interpreter: WarmInterpreter | None = None,
    seconds: float = 300,
) -> Any:
    """Run a program as several ranks without launcher variables; return the JSON that each rank printed last.

    Args:
        program: The text of a program; its arguments are its rank and then `arguments`.
        ranks: Number of processes that run it at the same time.
        arguments: Further arguments, the same for each rank.
        interpreter: Warm interpreter to fork the ranks from; None starts a new interpreter for each rank.
        seconds: Timeout on an idle machine, after which the ranks are killed.
    """
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    if interpreter is not None:
        forked = [interpreter.start(program, rank, *arguments, env=environment) for rank in range(ranks)]
        return [json.loads(out.splitlines()[-1]) for out, _ in run_together(forked, seconds)]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(rank), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rank in range(ranks)
    ]
    try:
        said = [process.communicate(timeout=patience(seconds)) for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    for process, (_, problems) in zip(running, said, strict=True):
        assert process.returncode == 0, problems[-3000:]
    return [json.loads(out.splitlines()[-1]) for out, _ in said]
