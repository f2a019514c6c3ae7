"""torchrun whose workers are forked from a process that has imported their programs: `forked_torchrun RUNS`.

RUNS is a JSON file with a list of runs, each with `program`, `arguments`, `environment` and `problem`: the file for the
error of a run that fails. Runs follow each other. The elastic agent is that of `torchrun --standalone
--nproc-per-node=2 --max-restarts=3`. Each worker of a normal torchrun imports torch and the trainer, which takes longer
than all of its steps; a fork takes some milliseconds.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch


def live(module: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run the program as its command line would."""
    os.environ.update(environment)
    sys.argv = [module, *arguments]
    importlib.import_module(module).main()


def main() -> None:
    """Start two workers for each run, and restart them until none of them dies."""
    runs = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    modules = {run["program"]: f"{__spec__.parent}.{run['program']}" for run in runs}
    multiprocessing.set_forkserver_preload([__spec__.name, *modules.values()])
    for run in runs:
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=2,
            run_id=str(uuid.uuid4()),
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            max_restarts=3,
            start_method="forkserver",
        )
        try:
            elastic_launch(config, live)(modules[run["program"]], run["arguments"], run["environment"])
        except ChildFailedError as problem:
            Path(run["problem"]).write_text(str(problem), encoding="utf-8")


if __name__ == "__main__":
    main()
