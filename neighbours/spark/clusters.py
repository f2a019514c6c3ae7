"""Training functions that engines start on Spark executors, and that are killed there; each records its rows.

Run by `test_clusters.py`: `python -m neighbours.spark.clusters WAY URL FOLDER`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from petastore import make_reader
from petastore.spark import local_session

EXECUTORS = "local-cluster[2,1,1024]"


def noted(folder: str, name: str, ids: list[int], shard: Any) -> None:
    Path(folder, f"{name}.json").write_text(json.dumps({"ids": ids, "shard": [shard.index, shard.count]}))


def note_begin(folder: str, name: str) -> None:
    """Create a file for each run of a node or rank; a retry runs in another process."""
    Path(folder, f"{name}-{os.getpid()}.begun").touch()


def begun_in(folder: str, name: str = "*") -> list[str]:
    return sorted(path.name.rpartition("-")[0] for path in Path(folder).glob(f"{name}-*.begun"))


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def lose_executor() -> None:
    java = next(process for process in psutil.Process().parents() if "java" in process.name())
    os.kill(java.pid, signal.SIGKILL)
    signal.pause()


def node(arguments: Any, ctx: Any) -> None:
    """TensorFlowOnSpark node: the worker dies after one batch; the chief waits until the worker has been restarted."""
    from petastore.distributed import from_tfos
    from petastore.interop.tensorflow_on_spark import DataFeed

    name, folder = f"{ctx.job_name}-{ctx.task_index}", arguments["folder"]
    is_first = not begun_in(folder, name)
    note_begin(folder, name)
    shard = from_tfos(ctx)
    feed = DataFeed(make_reader(ctx.absolute_path(arguments["url"]), cur_shard=shard), {"id": "id"})
    ids: list[int] = []
    while not feed.should_stop():
        batch = feed.next_batch(16)
        assert isinstance(batch, dict)
        ids += batch["id"].tolist()
        if ctx.job_name == "worker" and is_first:
            arguments["do"]()
    while ctx.job_name == "chief" and len(begun_in(folder, "worker-0")) < arguments["begins"]:
        time.sleep(0.1)  # nodes can only communicate through files
    noted(folder, name, ids, shard)


def tensorflow_cluster(
    folder: str, url: str, do: Callable[[], None], *, begins: int, seconds: int = 3600, failures: int = 4
) -> None:
    from tensorflowonspark import TFCluster

    spark = local_session("tfos", EXECUTORS, **{"spark.task.maxFailures": str(failures)})
    arguments = {"url": f"file://{url}", "folder": folder, "begins": begins, "do": do}
    cluster = TFCluster.run(
        spark.sparkContext, node, arguments, num_executors=2, num_ps=0, tensorboard=False,
        input_mode=TFCluster.InputMode.TENSORFLOW, master_node="chief",
    )  # fmt: skip
    cluster.shutdown(timeout=seconds)
    spark.stop()


def tensorflow_on_spark(url: str, folder: str) -> None:
    """Lose an executor; Spark retries its node."""
    tensorflow_cluster(folder, url, lose_executor, begins=2)


def tensorflow_on_spark_once(url: str, folder: str) -> None:
    """Lose an executor; Spark may not retry its node."""
    tensorflow_cluster(folder, url, lose_executor, begins=1, failures=1)


def tensorflow_on_spark_unnoticed(url: str, folder: str) -> None:
    """Kill the process of a node; its connection to Spark stays open in the process of its queues."""
    tensorflow_cluster(folder, url, die, begins=1, seconds=30)


def horovod_rank(url: str, folder: str, at_step: int, do: Callable[[], None] | None) -> list[int]:
    """Commit rows and the state every other step; rank 1 calls `do` at a step."""
    import horovod.torch as hvd

    from petastore.adapters.torch import DataLoader
    from petastore.distributed import from_horovod, horovod_all_gather

    hvd.init()
    name = f"rank-{hvd.rank()}"
    note_begin(folder, f"{name}-{at_step}")
    saved, ids = Path(folder, f"{name}.state"), []
    with make_reader(url, cur_shard="auto", shuffle_rows=True, seed=3) as reader:
        reader.plan.assert_agreed(horovod_all_gather)
        loader = DataLoader(reader, batch_size=16)
        if saved.exists():
            state, ids = json.loads(saved.read_text())
            loader.load_state_dict(state)
        for step, batch in enumerate(loader):
            hvd.barrier()
            if (hvd.rank(), step) == (1, at_step) and do is not None:
                do()
            ids += batch["id"].tolist()
            if step % 2:
                hvd.barrier()
                saved.write_text(json.dumps([loader.state_dict(), ids]))
    noted(folder, name, ids, from_horovod())
    return ids


def horovod(url: str, folder: str) -> None:
    """Kill a rank, and later the executor of one; after each, the driver restarts all ranks."""
    from horovod.spark import run

    spark = local_session("horovod", EXECUTORS)
    problems = []
    for at_step, do in ((3, die), (2, lose_executor)):
        try:
            run(horovod_rank, args=(url, folder, at_step, do), num_proc=2, env=dict(os.environ), verbose=0)
        except Exception as problem:  # noqa: BLE001 - Horovod's are of this type
            problems.append(str(problem))
    told = run(horovod_rank, args=(url, folder, 99, None), num_proc=2, env=dict(os.environ), verbose=0)
    assert len(told) == 2
    spark.stop()
    Path(folder, "problems").write_text(json.dumps(problems))


if __name__ == "__main__":
    ways = {
        "tensorflow-on-spark": tensorflow_on_spark,
        "tensorflow-on-spark-once": tensorflow_on_spark_once,
        "tensorflow-on-spark-unnoticed": tensorflow_on_spark_unnoticed,
        "horovod": horovod,
    }
    ways[sys.argv[1]](*sys.argv[2:])
