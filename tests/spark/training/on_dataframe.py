"""Training on the executors of one Spark session, of the kind named on the command line; facts go into a JSON file.

Run by `test_run.py`: `python -m tests.spark.training.on_dataframe KIND FOLDER`.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from petastore import Unischema, UnischemaField, write_dataset
from petastore.codecs import CompressedImageCodec, NdarrayCodec
from petastore.spark import LocalRows, connect_session, local_session, run_on_dataframe
from tests.spark.scenario import problem_of

MASTER = "local-cluster[2,1,1024]"
SCHEMA = Unischema(
    "frames",
    [
        UnischemaField("id", "int64"),
        UnischemaField("frame", "uint8", (4, 4, 3), CompressedImageCodec("png")),
        UnischemaField("pose", "float32", (2, 2), NdarrayCodec()),
    ],
)
RAW = (
    "id",
    "cast(repeat(char(48 + id % 10), 48) as binary) as frame",
    "array(float(id), 1f, 2f, 3f) as pose",
)


def trained(rows: LocalRows) -> dict[str, Any]:
    """Two epochs with torch, whose ranks wait for each other at each step."""
    import torch.distributed

    from petastore.adapters.torch import DataLoader
    from petastore.distributed import current_shard, torch_all_gather

    torch.distributed.init_process_group("gloo")
    steps, seen, sums = [], [], []
    with rows.make_reader(num_epochs=2, shuffle_rows=True, seed=3) as reader:
        reader.plan.assert_agreed(torch_all_gather)
        for batch in DataLoader(reader, batch_size=16):
            ids = batch["id"]
            total = ids.sum()
            torch.distributed.all_reduce(total)
            steps.append(len(ids))
            seen += ids.tolist()
            sums.append(int(total))
            is_right = (batch["pose"].reshape(len(ids), -1)[:, 0] == ids).all()
            assert is_right
    torch.distributed.destroy_process_group()
    return {
        "rank": rows.shard.index,
        "shard": [current_shard().index, current_shard().count],
        "num_rows": rows.num_rows,
        "steps": steps,
        "ids": seen,
        "sums": sums,
        "own files": sorted(path.parent.name for path in Path(rows.url).rglob("*.parquet")),
        "url": rows.url,
        "workers": len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]),
    }


class Steps:
    """Each method is a step; it returns facts for the JSON file."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        # Uneven: the first of two partitions has a third of its rows.
        self.raw = spark.range(0, 1337, 1, 2).where("id % 2 = 0 or id >= 669").selectExpr(*RAW)
        self.rows = self.raw.count()

    def uneven(self) -> dict[str, Any]:
        told = run_on_dataframe(self.raw, trained, schema=SCHEMA, rows_per_row_group=100)
        expected = sorted(row["id"] for row in self.raw.select("id").collect())
        ids = [told[0]["ids"], told[1]["ids"]]
        halves = [numbers[: len(numbers) // 2] for numbers in ids]
        return {
            "rows": self.rows,
            "ranks": [one["rank"] for one in told],
            "shards": [one["shard"] for one in told],
            "num_rows": [one["num_rows"] for one in told],
            "steps": [len(one["steps"]) for one in told],
            "sums agree": told[0]["sums"] == told[1]["sums"],
            "an epoch is whole": sorted(halves[0] + halves[1]) == expected,
            "two epochs are whole": sorted(ids[0] + ids[1]) == sorted(expected * 2),
            "epochs differ": [numbers[: len(numbers) // 2] != numbers[len(numbers) // 2 :] for numbers in ids],
            "own files": [sorted(set(one["own files"])) for one in told],
            "left": [one["url"] for one in told if Path(one["url"]).exists()],
            "workers": told[0]["workers"],
        }

    def shuffled_into_ranks(self) -> dict[str, Any]:
        """Without a schema, and of more ranks than the DataFrame has partitions."""
        plain = self.spark.range(0, 11, 1, 1).selectExpr("id", "array(float(id), 1f) as track", "string(id) as name")
        told = run_on_dataframe(plain, looked_at, 2)
        return {"ids": sorted(told[0]["ids"] + told[1]["ids"]), "shapes": told[0]["shapes"], "rank 0": told[0]["type"]}

    def distributed_by_torch(self) -> dict[str, Any]:
        """What pyspark brings for torch, with a dataset that all executors reach."""
        from pyspark.ml.torch.distributor import TorchDistributor

        url = str(self.folder / "frames")
        write_dataset(url, {"id": range(103)}, rows_per_row_group=7)
        distributor = TorchDistributor(num_processes=2, local_mode=False, use_gpu=False)
        ids, steps = distributor.run(read_by_rank, url)
        return {"each once": sorted(ids) == list(range(103)), "steps": steps}

    def refused(self) -> dict[str, Any]:
        few = self.spark.range(0, 1, 1, 2)
        bad = self.raw.selectExpr("id", "frame", "if(id = 1200, array(1f), pose) as pose")
        here = self.folder / "failures"
        return {
            "few": problem_of(lambda: run_on_dataframe(few, looked_at)),
            "a value": problem_of(lambda: run_on_dataframe(bad, looked_at, schema=SCHEMA)),
            "a result": problem_of(lambda: run_on_dataframe(self.raw, lambda _: {1, 2}, schema=SCHEMA)),
            "a column": problem_of(lambda: run_on_dataframe(self.raw.drop("pose"), looked_at, schema=SCHEMA)),
            "no function": problem_of(lambda: run_on_dataframe(self.raw, "train.py")),  # type: ignore[arg-type]
            "restarts": problem_of(lambda: run_on_dataframe(self.raw, looked_at, restarts=-1)),
            "a function": problem_of(lambda: run_on_dataframe(self.raw, fails(str(here)), schema=SCHEMA)),
            "begun": sorted(path.name for path in here.iterdir()),
        }

    def lost(self) -> dict[str, Any]:
        """The executor of rank 1 is killed while it trains."""
        here, again = self.folder / "lost", self.folder / "again"
        problem = problem_of(lambda: run_on_dataframe(self.raw, dies(str(here)), schema=SCHEMA))
        with pytest.warns(RuntimeWarning, match="It begins again"):
            told = run_on_dataframe(self.raw, dies(str(again)), schema=SCHEMA, restarts=1)
        ids = sorted(number for one in told for number in one["ids"])
        return {
            "problem": problem,
            "begun": sorted(path.name for path in here.glob("begun-*")),
            "restarts": [one["restarts"] for one in told],
            "went on": [one["went on"] for one in told],
            "whole": ids == sorted(row["id"] for row in self.raw.select("id").collect()),
        }


def looked_at(rows: LocalRows) -> dict[str, Any]:
    with rows.make_reader() as reader:
        batches = list(reader.batches(4))
        return {
            "ids": [int(number) for batch in batches for number in batch["id"]],
            "shapes": {name: list(field.shape) for name, field in reader.schema.fields.items()},
            "type": type(rows).__name__,
        }


def read_by_rank(url: str) -> tuple[list[int], list[int]]:
    """On rank 0: rows of all ranks, and how many batches each had."""
    import torch.distributed

    from petastore import make_reader
    from petastore.adapters.torch import DataLoader

    torch.distributed.init_process_group("gloo")
    with make_reader(url, cur_shard="auto", shuffle_rows=True) as reader:
        ids = [batch["id"].tolist() for batch in DataLoader(reader, batch_size=8)]
    told: list[Any] = [None, None]
    torch.distributed.all_gather_object(told, ids)
    torch.distributed.destroy_process_group()
    return [number for one in told for batch in one for number in batch], [len(one) for one in told]


def fails(folder: str) -> Callable[[LocalRows], None]:
    def train(rows: LocalRows) -> None:
        Path(folder).mkdir(exist_ok=True)
        Path(folder, f"{rows.shard.index}-{rows.restarts}").touch()
        if rows.shard.index == 1:
            raise ArithmeticError("the loss is NaN")
        signal.pause()  # until somebody ends it

    return train


def dies(folder: str) -> Callable[[LocalRows], dict[str, Any]]:
    """Rank 1 loses its executor at step 5 of its first time; states are saved after every other step."""

    def train(rows: LocalRows) -> dict[str, Any]:
        import torch.distributed

        from petastore.adapters.torch import DataLoader

        torch.distributed.init_process_group("gloo")
        saved = Path(folder)
        saved.mkdir(exist_ok=True)
        (saved / f"begun-{rows.shard.index}-{rows.restarts}").touch()
        mine = saved / f"state-{rows.shard.index}.json"
        ids: list[int] = []
        with rows.make_reader(shuffle_rows=True, seed=3) as reader:
            loader = DataLoader(reader, batch_size=16)
            went_on = rows.restarts > 0 and mine.exists()
            if went_on:
                state, ids = json.loads(mine.read_text())
                loader.load_state_dict(state)
            for step, batch in enumerate(loader):
                torch.distributed.barrier()
                if rows.restarts == 0 and step == 5 and rows.shard.index == 1:
                    kill_the_executor()
                    signal.pause()
                ids += batch["id"].tolist()
                if step % 2:
                    torch.distributed.barrier()
                    mine.write_text(json.dumps([loader.state_dict(), ids]))
        torch.distributed.destroy_process_group()
        return {"ids": ids, "restarts": rows.restarts, "went on": went_on}

    return train


def kill_the_executor() -> None:
    java = next(process for process in psutil.Process().parents() if "java" in process.name())
    os.kill(java.pid, signal.SIGKILL)


if __name__ == "__main__":
    kind, target = sys.argv[1], Path(sys.argv[2])
    quickly = {"spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s"}
    make = connect_session if kind == "connect" else functools.partial(local_session, "tests")
    session = make(MASTER, **quickly)
    own = Steps(session, target)
    # What Spark does with tasks that fail is alike for both kinds, and takes a while.
    hostile: tuple[Callable[[], Any], ...] = () if kind == "connect" else (own.refused, own.lost)
    facts = {
        step.__name__: step() for step in (own.uneven, own.shuffled_into_ranks, own.distributed_by_torch, *hostile)
    }
    session.stop()
    (target / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
