"""Steps of training on executors with `run_on_dataframe` and TorchDistributor; `test_run.py` checks the facts."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from petastore import Unischema, UnischemaField, write_dataset
from petastore.codecs import CompressedImageCodec, NdarrayCodec
from petastore.spark import LocalRows, run_on_dataframe
from tests.spark.scenario import problem_of

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
    """Train two epochs with torch; the ranks synchronize at each step."""
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
        # The partitions are uneven: the first one has a third of the rows.
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
        """Train without a schema, on more ranks than the DataFrame has partitions."""
        plain = self.spark.range(0, 11, 1, 1).selectExpr("id", "array(float(id), 1f) as track", "string(id) as name")
        told = run_on_dataframe(plain, looked_at, 2)
        return {"ids": sorted(told[0]["ids"] + told[1]["ids"]), "shapes": told[0]["shapes"], "rank 0": told[0]["type"]}

    def distributor_killed(self) -> dict[str, Any]:
        """Kill a torch rank in mid-epoch; the driver restarts, and the ranks resume from their commits."""
        from pyspark.ml.torch.distributor import TorchDistributor

        url, here = str(self.folder / "frames"), self.folder / "by torch"
        write_dataset(url, {"id": range(103)}, rows_per_row_group=7)
        here.mkdir()
        distributor = TorchDistributor(num_processes=2, local_mode=False, use_gpu=False)
        problem = problem_of(lambda: distributor.run(commits, url, str(here), 0))
        begun = begun_in(here)
        told = distributor.run(commits, url, str(here), 1)
        return {
            "problem": problem,
            "begun": begun,
            "begun again": begun_in(here),
            "went on": [one["went on"] for one in told],
            "steps": [one["steps"] for one in told],
            "ids": sorted(number for one in told for number in one["ids"]),
        }

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
            "begun": begun_in(here),
            "a death": problem_of(lambda: run_on_dataframe(self.raw, is_killed, schema=SCHEMA)),
        }

    def lost(self) -> dict[str, Any]:
        """Kill the executor of rank 1 while it trains."""
        here, again = self.folder / "lost", self.folder / "again"
        problem = problem_of(lambda: run_on_dataframe(self.raw, dies(str(here)), schema=SCHEMA))
        with pytest.warns(RuntimeWarning, match="Training restarts"):
            told = run_on_dataframe(self.raw, dies(str(again)), schema=SCHEMA, restarts=1)
        ids = sorted(number for one in told for number in one["ids"])
        return {
            "problem": problem,
            "begun": begun_in(here),
            "restarts": [one["restarts"] for one in told],
            "went on": [one["went on"] for one in told],
            "whole": ids == sorted(row["id"] for row in self.raw.select("id").collect()),
        }


def looked_at(rows: LocalRows) -> dict[str, Any]:
    with rows.make_reader() as reader:
        batches = list(reader.iter_batches(4))
        return {
            "ids": [int(number) for batch in batches for number in batch["id"]],
            "shapes": {name: list(field.shape) for name, field in reader.schema.fields.items()},
            "type": type(rows).__name__,
        }


def fails(folder: str) -> Callable[[LocalRows], None]:
    def train(rows: LocalRows) -> None:
        Path(folder).mkdir(exist_ok=True)
        note_begin(folder, rows.shard.index, rows.restarts)
        if rows.shard.index == 1:
            raise ArithmeticError("the loss is NaN")
        signal.pause()  # waits until the process is killed

    return train


def is_killed(rows: LocalRows) -> None:
    if rows.shard.index == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()


def dies(folder: str) -> Callable[[LocalRows], dict[str, Any]]:
    """Return a function that trains and saves its state every other step.

    Rank 1 kills its executor at step 5 of its first run.
    """

    def train(rows: LocalRows) -> dict[str, Any]:
        import torch.distributed

        torch.distributed.init_process_group("gloo")
        Path(folder).mkdir(exist_ok=True)
        note_begin(folder, rows.shard.index, rows.restarts)
        is_first = rows.restarts == 0 and rows.shard.index == 1
        with rows.make_reader(shuffle_rows=True, seed=3) as reader:
            found = committed(
                reader, Path(folder, f"state-{rows.shard.index}.json"), lose_executor if is_first else None
            )
        torch.distributed.destroy_process_group()
        return found | {"restarts": rows.restarts}

    return train


def commits(url: str, folder: str, restarts: int) -> list[dict[str, Any]]:
    """Return on rank 0 the commits of both ranks; rank 1 is killed at step 5 of its first run."""
    import torch.distributed

    from petastore import make_reader

    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    note_begin(folder, rank, restarts)
    with make_reader(url, cur_shard="auto", shuffle_rows=True, seed=3) as reader:
        found = committed(reader, Path(folder, f"state-{rank}.json"), die if (rank, restarts) == (1, 0) else None)
    told: list[Any] = [None, None]
    torch.distributed.all_gather_object(told, found)
    torch.distributed.destroy_process_group()
    return told


def committed(reader: Any, mine: Path, at_step_5: Callable[[], None] | None) -> dict[str, Any]:
    """Train in steps that all ranks share; every other step a rank saves its rows so far and its state."""
    import torch.distributed

    from petastore.adapters.torch import DataLoader

    loader = DataLoader(reader, batch_size=8)
    went_on, ids, steps = mine.exists(), [], 0
    if went_on:
        state, ids, steps = json.loads(mine.read_text())
        loader.load_state_dict(state)
    for step, batch in enumerate(loader):
        torch.distributed.barrier()
        if step == 5 and at_step_5 is not None:
            at_step_5()
        ids += batch["id"].tolist()
        steps += 1
        if step % 2:
            torch.distributed.barrier()
            mine.write_text(json.dumps([loader.state_dict(), ids, steps]))
    return {"ids": ids, "went on": went_on, "steps": steps}


def note_begin(folder: str, rank: int, restarts: int) -> None:
    """Create a file for each run of a rank; a rank that is retried runs in another process."""
    Path(folder, f"begun-{rank}-{restarts}-{os.getpid()}").touch()


def begun_in(folder: Path) -> list[str]:
    return sorted(path.name.rpartition("-")[0] for path in folder.glob("begun-*"))


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def lose_executor() -> None:
    java = next(process for process in psutil.Process().parents() if "java" in process.name())
    os.kill(java.pid, signal.SIGKILL)
    signal.pause()


def facts_of(kind: str, spark: Any, folder: Path) -> dict[str, Any]:
    """Run the steps; on Connect only those whose messages or DataFrames may differ."""
    own = Steps(spark, folder)
    steps: list[Callable[[], Any]] = [own.uneven, own.refused]
    if kind == "local-cluster":
        steps += [own.shuffled_into_ranks, own.distributor_killed, own.lost]
    return {step.__name__: step() for step in steps}
