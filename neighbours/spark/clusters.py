"""Training functions that engines start on Spark's executors; each notes which rows its rank was given.

Run by `test_clusters.py`: `python -m neighbours.spark.clusters WAY URL FOLDER`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from petastore import make_reader
from petastore.spark import local_session

EXECUTORS = "local-cluster[2,1,1024]"


def noted(folder: str, name: str, ids: list[int], shard: Any) -> None:
    Path(folder, f"{name}.json").write_text(json.dumps({"ids": ids, "shard": [shard.index, shard.count]}))


def node(arguments: Any, ctx: Any) -> None:
    """A node of TensorFlowOnSpark."""
    from petastore.distributed import from_tfos
    from petastore.interop.tensorflow_on_spark import DataFeed

    shard = from_tfos(ctx)
    feed = DataFeed(make_reader(ctx.absolute_path(arguments["url"]), cur_shard=shard), {"id": "id"})
    ids: list[int] = []
    while not feed.should_stop():
        batch = feed.next_batch(16)
        assert isinstance(batch, dict)
        ids += batch["id"].tolist()
    noted(arguments["folder"], f"{ctx.job_name}-{ctx.task_index}", ids, shard)


def tensorflow_on_spark(url: str, folder: str) -> None:
    from tensorflowonspark import TFCluster

    spark = local_session("tfos", EXECUTORS)
    arguments = {"url": f"file://{url}", "folder": folder}
    cluster = TFCluster.run(
        spark.sparkContext, node, arguments, num_executors=2, num_ps=0, tensorboard=False,
        input_mode=TFCluster.InputMode.TENSORFLOW, master_node="chief",
    )  # fmt: skip
    cluster.shutdown()
    spark.stop()


def horovod_rank(url: str, folder: str) -> list[int]:
    import horovod.torch as hvd

    from petastore.adapters.torch import DataLoader
    from petastore.distributed import from_horovod, horovod_all_gather

    hvd.init()
    with make_reader(url, cur_shard="auto", shuffle_rows=True) as reader:
        reader.plan.assert_agreed(horovod_all_gather)
        ids = [number for batch in DataLoader(reader, batch_size=16) for number in batch["id"].tolist()]
    noted(folder, f"rank-{hvd.rank()}", ids, from_horovod())
    return ids


def horovod(url: str, folder: str) -> None:
    from horovod.spark import run

    spark = local_session("horovod", EXECUTORS)
    told = run(horovod_rank, args=(url, folder), num_proc=2, env=dict(os.environ), verbose=0)
    assert len(told) == 2
    spark.stop()


if __name__ == "__main__":
    ways = {"tensorflow-on-spark": tensorflow_on_spark, "horovod": horovod}
    ways[sys.argv[1]](*sys.argv[2:])
