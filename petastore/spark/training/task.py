"""What each task of the barrier stage does: spools its partition, trades rows for equal parts, and lets train.

```text
1. each writes its partition to its own disk
2. they tell each other how many rows they have, and where    allGather
3. rows move until all have equal parts
4. they tell which files they have, and free ports            allGather
5. each lets its trainer run the function
```

A problem of one rank in steps 1 to 4 is told to all, and all ranks end alike. One in step 5 fails the task, so that
Spark ends those that wait for it.
"""

from __future__ import annotations

import dataclasses
import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from petastore.errors import PetastoreError, WorkerError
from petastore.plan.order.parts import Parts
from petastore.plan.request import Shard
from petastore.schema import Unischema
from petastore.schema.arrow import storage_schema
from petastore.spark.columns import encode_batches
from petastore.spark.training.exchange import Door, free_port, taken
from petastore.spark.training.local_rows import LocalRows
from petastore.spark.training.moves import Move, moves
from petastore.spark.training.spool import Spool, StoredPart
from petastore.spark.training.trainer import Outcome, Trainer
from petastore.writers.layout import Layout

__all__ = ["RESULT", "Job", "Kind"]

RESULT = pa.schema({"rank": pa.int32(), "kind": pa.string(), "said": pa.binary()})
"""What a task gives: its rank, how it ended, and what with."""

Kind: TypeAlias = Literal["value", "problem"]
"""How a rank ended: with an encoded `Outcome`, or with a text."""

_SPARK_SAYS_IT_FIRST_S = 2.0
"""Seconds in which Spark notices that an executor is gone, where functions fail because their peers are."""

_Gather: TypeAlias = Callable[[dict[str, Any]], list[dict[str, Any]]]


@dataclasses.dataclass(frozen=True)
class Job:
    """The function that Spark runs over each partition. A value; it goes to tasks by pickle."""

    secret: bytes = dataclasses.field(repr=False)
    """What its ranks know, and nobody else."""

    schema: Unischema
    """The schema of the rows."""

    columns: tuple[str, ...]
    """True names of the columns, by position."""

    layout: Layout
    """Of the files on local disks."""

    function: bytes = dataclasses.field(repr=False)
    """The training function, as a pickle."""

    restarts: int
    """How often training was begun before."""

    folder: str | None
    """Where rows lie on each host; None is where temporary files are."""

    mark: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex)
    """Stands before and after what a rank raised, and nowhere else in what Spark says of it."""

    def marked(self, problem: str) -> str:
        """What a rank raises, as it is found again in what the driver hears of it."""
        return f"{self.mark}\n{problem}\n{self.mark}"

    def problem_in(self, said: str) -> str | None:
        """What the first rank raised, in what Spark says of it; None where no rank did.

        Spark puts stacks of Java's around it, and classic sessions say it twice; long texts may come cut off.
        """
        _, _, after = said.partition(self.mark)
        return after.partition(self.mark)[0].strip() or None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Runs in a task, to its end."""
        from pyspark import BarrierTaskContext

        context = BarrierTaskContext.get()
        hosts = [task.address.rpartition(":")[0] or task.address for task in context.getTaskInfos()]

        def gather(facts: dict[str, Any]) -> list[dict[str, Any]]:
            return [json.loads(text) for text in context.allGather(json.dumps(facts))]

        rank = _Rank(self, context.partitionId(), hosts, gather)
        kind, said = rank.run(batches)
        yield pa.record_batch([[rank.rank], [kind], [said]], schema=RESULT)


class _Rank:
    """One task of the stage."""

    def __init__(self, job: Job, rank: int, hosts: list[str], gather: _Gather) -> None:
        self.job, self.rank, self.hosts, self.gather = job, rank, hosts, gather

    @property
    def _name(self) -> str:
        return f"rank {self.rank} of {len(self.hosts)}"

    def run(self, batches: Iterator[pa.RecordBatch]) -> tuple[Kind, bytes]:
        """How it ended.

        Raises:
            WorkerError: The function did not come to its end.
        """
        trainer = Trainer(self.job.folder)
        try:
            rows, environment = self._spooled(trainer.folder(), batches)
        except _GivenUpError as problem:
            trainer.close()
            return "problem", str(problem).encode()
        try:
            outcome = trainer.train(rows, self.job.function, environment)
        except WorkerError as death:
            outcome = Outcome.of_problem(str(death))
        if outcome.problem is not None:
            # The trainer is left to the end of this worker, which comes after Spark was told: its peers notice then,
            # and what they say of it is not taken for the cause. Where an executor was lost, Spark says so by itself.
            time.sleep(_SPARK_SAYS_IT_FIRST_S)
            raise WorkerError(self.job.marked(f"{self._name}, on {self.hosts[self.rank]}: {outcome.problem}"))
        trainer.close()
        return "value", outcome.encoded

    def _spooled(self, folder: str, batches: Iterator[pa.RecordBatch]) -> tuple[LocalRows, Mapping[str, str]]:
        spool = Spool(folder, self.job.schema, self.job.layout, self.rank)
        named = (pa.RecordBatch.from_arrays(batch.columns, list(self.job.columns)) for batch in batches)
        with Door(self.hosts[self.rank], self.job.secret) as door:

            def write() -> dict[str, Any]:
                spool.append(encode_batches(named, self.job.schema))
                return {"rows": spool.num_rows, "port": door.open(visitors=len(self.hosts))}

            told = self._agreed(write)
            there = [int(facts["rows"]) for facts in told]
            addresses = [(host, int(facts["port"])) for host, facts in zip(self.hosts, told, strict=True)]

            def trade() -> dict[str, Any]:
                parts = Parts.of(sum(there), ranks=len(there))
                self._trade(spool, door, moves(there, parts.rows), addresses)
                ports = [free_port(self.hosts[self.rank]) for _ in range(2)]
                return {"stored": spool.stored().facts(), "ports": ports}

            told = self._agreed(trade)
        spool.publish([StoredPart(**facts["stored"]) for facts in told], "petastore run_on_dataframe")
        lanes = Parts.of(sum(there), ranks=len(there)).lanes
        rows = LocalRows(folder, Shard(self.rank, len(there)), sum(there), lanes, self.job.restarts)
        return rows, self._environment([facts["ports"] for facts in told])

    def _trade(self, spool: Spool, door: Door, all_moves: list[Move], addresses: list[tuple[str, int]]) -> None:
        given = [move for move in all_moves if move.giver == self.rank]
        if given:
            door.hand_out(spool, given)
        for move in all_moves:
            if move.taker == self.rank:
                stored = storage_schema(self.job.schema)
                spool.append(taken(move, addresses[move.giver], self.job.secret, stored))

    def _agreed(self, work: Callable[[], dict[str, Any]]) -> list[dict[str, Any]]:
        """What each rank's work gave, or the first one's problem, on every rank alike."""
        try:
            mine: dict[str, Any] = {"gave": work(), "problem": None}
        except (PetastoreError, OSError) as problem:
            mine = {"gave": None, "problem": f"{self._name}: {problem}"}
        told = self.gather(mine)
        for facts in told:
            if facts["problem"] is not None:
                raise _GivenUpError(facts["problem"])
        return [facts["gave"] for facts in told]

    def _environment(self, ports: list[list[int]]) -> Mapping[str, str]:
        """What launchers set for torch and TensorFlow."""
        host, count = self.hosts[self.rank], len(self.hosts)
        peers = [rank for rank, other in enumerate(self.hosts) if other == host]
        workers = [f"{other}:{free[1]}" for other, free in zip(self.hosts, ports, strict=True)]
        cluster = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": self.rank}}
        return {
            "MASTER_ADDR": self.hosts[0],
            "MASTER_PORT": str(ports[0][0]),
            "RANK": str(self.rank),
            "WORLD_SIZE": str(count),
            "LOCAL_RANK": str(peers.index(self.rank)),
            "LOCAL_WORLD_SIZE": str(len(peers)),
            "TF_CONFIG": json.dumps(cluster),
        }


class _GivenUpError(Exception):
    """A rank could not get its rows; the message is the same on all."""
