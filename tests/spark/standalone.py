"""Spark standalone cluster on this machine: a master, and workers with different addresses as hosts.

`local-cluster` has one host, and Spark runs no second attempt of a task on the same host.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyspark

from petastore.spark.java import use_java
from tests.pace import patience

_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_DEPLOY = "org.apache.spark.deploy"


@contextlib.contextmanager
def standalone_cluster(
    folder: Path, workers: Sequence[str] = ("127.0.0.2", "127.0.0.3"), *, cores: int = 1
) -> Iterator[str]:
    """Start a master with some workers, and yield the master's URL; all end after the block.

    Args:
        folder: A folder for logs and files of workers.
        workers: Loopback addresses of this machine.
        cores: The number of concurrent tasks per worker.
    """
    use_java()
    with contextlib.ExitStack() as stack:
        master = [f"{_DEPLOY}.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        url = stack.enter_context(_running(master, r"Starting Spark master at (spark://\S+)", folder / "master.log"))
        for worker in workers:
            kept = ["--cores", str(cores), "--memory", "1g", "--work-dir", str(folder / worker), "--webui-port", "0"]
            command = [f"{_DEPLOY}.worker.Worker", url, "--host", worker, *kept]
            stack.enter_context(_running(command, "Successfully (registered) with master", folder / f"{worker}.log"))
        yield url


@contextlib.contextmanager
def _running(command: list[str], says: str, log: Path) -> Iterator[str]:
    """Start a Spark process, and yield the matched text once its log says that it is ready."""
    with log.open("w") as kept, contextlib.ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(
                [_CLASS, *command],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
                text=True,
            )
        )
        stack.callback(process.wait, patience(30))
        stack.callback(process.terminate)
        assert process.stdout is not None
        found = None
        for line in process.stdout:
            kept.write(line)
            found = re.search(says, line)
            if found is not None:
                break
        assert found is not None, f"{command[0]} ended; see {log}"
        rest = threading.Thread(target=shutil.copyfileobj, args=(process.stdout, kept))
        rest.start()
        stack.callback(rest.join)  # callbacks run in reverse order, so this runs after the process ends
        stack.callback(process.terminate)
        yield found[1]
