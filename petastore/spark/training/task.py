"""Barrier task: store the partition locally, exchange rows, and train.

```text
1. each rank writes its partition of the DataFrame to its local disk
2. ranks exchange their numbers of rows and their addresses      allGather
3. ranks send rows to each other, so that all have equal parts
4. ranks exchange the names of their files, and free ports       allGather
5. each rank runs the function in its trainer process
```

An error of one rank in steps 1 to 4 is sent to all ranks, and all of them end. An error in step 5 fails the task, so
that Spark ends the ranks that wait for it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from petastore.errors import PetastoreError, WorkerError
from petastore.plan.order.parts import Parts
from petastore.plan.request import Shard
from petastore.schema import Unischema
from petastore.schema.arrow import storage_schema
from petastore.spark.dataframe import encode_numbered
from petastore.spark.session import free_port
from petastore.spark.training.exchange import Move, hand_out, listening, moves, taken
from petastore.spark.training.spool import LocalRows, Spool
from petastore.spark.training.trainer import Outcome, Trainer
from petastore.writers.parquet import FileLayout

__all__ = ["RESULT", "Job"]

RESULT = pa.schema({"rank": pa.int32(), "outcome": pa.binary()})
"""Arrow schema of the result of a task: its rank and its encoded `Outcome`."""

_SPARK_SAYS_IT_FIRST_S = 2.0
"""Seconds to wait before a task fails, so that Spark can first report a lost executor.

When an executor is lost, the training functions of the other ranks fail, too, and would hide this cause.
"""

_Gather: TypeAlias = Callable[[dict[str, Any]], list[dict[str, Any]]]


@dataclasses.dataclass(frozen=True)
class Job:
    """Function that Spark runs over each partition, in one barrier stage.

    It is immutable, and is sent to tasks as a pickle.
    """

    secret: bytes = dataclasses.field(repr=False)
    """Shared secret of the ranks, by which they authenticate connections."""

    schema: Unischema
    """The schema of the rows."""

    columns: tuple[str, ...]
    """Original name of each column, in order; Spark passes the columns as `c0`, `c1`, …"""

    layout: FileLayout
    """Layout of the files on local disks."""

    function: bytes = dataclasses.field(repr=False)
    """The training function, as a pickle."""

    restarts: int
    """Number of earlier attempts of the training."""

    folder: str | None
    """Directory for rows on each host; None means the temporary directory."""

    mark: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex)
    """Unique text around the exception of a rank, by which it is found in Spark's message."""

    def marked(self, problem: str) -> str:
        """Return the exception of a rank with a marker by which the driver finds it."""
        return f"{self.mark}\n{problem}\n{self.mark}"

    def problem_in(self, said: str) -> str | None:
        """Extract the exception of the first failed rank from Spark's error message.

        Return None if the message has no exception of a rank.

        The exception is the text between the first two markers. Around it, Spark adds stack traces of Java.
        If Spark cut the message off, the exception may be incomplete.
        """
        _, _, after = said.partition(self.mark)
        return after.partition(self.mark)[0].strip() or None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run one rank's barrier task to its end; yield a record batch with its result."""
        from pyspark import BarrierTaskContext

        context = BarrierTaskContext.get()
        hosts = [task.address.rpartition(":")[0] or task.address for task in context.getTaskInfos()]

        def gather(facts: dict[str, Any]) -> list[dict[str, Any]]:
            return [json.loads(text) for text in context.allGather(json.dumps(facts))]

        rank = _Rank(self, context.partitionId(), hosts, gather)
        yield pa.record_batch([[rank.rank], [rank.run(batches).encoded]], schema=RESULT)


class _Rank:
    """Barrier task of one rank.

    It stores its partition, exchanges rows, and trains in a separate process.
    """

    def __init__(self, job: Job, rank: int, hosts: list[str], gather: _Gather) -> None:
        self.job, self.rank, self.hosts, self.gather = job, rank, hosts, gather

    @property
    def _name(self) -> str:
        return f"rank {self.rank} of {len(self.hosts)}"

    def run(self, batches: Iterator[pa.RecordBatch]) -> Outcome:
        """Run the task; return the result of the training function, or the reason why training did not start.

        Raises:
            WorkerError: The function failed, or its process died.
        """
        trainer = Trainer(self.job.folder)
        try:
            rows, environment = self._spooled(trainer.folder(), batches)
        except _GivenUpError as problem:
            trainer.close()
            return Outcome.of_problem(str(problem))
        try:
            outcome = trainer.train(rows, self.job.function, environment)
        except WorkerError as death:
            outcome = Outcome.of_problem(str(death))
        if outcome.problem is not None:
            # The trainer process stays until this worker ends, after Spark has received the error. Other ranks fail
            # only then, so Spark does not report their errors as the cause. Spark itself reports a lost executor.
            time.sleep(_SPARK_SAYS_IT_FIRST_S)
            raise WorkerError(self.job.marked(f"{self._name}, on {self.hosts[self.rank]}: {outcome.problem}"))
        trainer.close()
        return outcome

    def _spooled(self, folder: str, batches: Iterator[pa.RecordBatch]) -> tuple[LocalRows, Mapping[str, str]]:
        spool = Spool(folder, self.job.schema, self.job.layout, self.rank)
        with contextlib.ExitStack() as stack:

            def write() -> dict[str, Any]:
                spool.append(encode_numbered(batches, self.job.schema, self.job.columns))
                host, secret = self.hosts[self.rank], self.job.secret
                self._listener, port = listening(host, secret, visitors=len(self.hosts))
                stack.enter_context(self._listener)
                return {"rows": spool.num_rows, "port": port}

            told = self._agreed(write)
            there = [int(facts["rows"]) for facts in told]
            addresses = [(host, int(facts["port"])) for host, facts in zip(self.hosts, told, strict=True)]

            def trade() -> dict[str, Any]:
                parts = Parts.of(sum(there), ranks=len(there))
                self._trade(spool, moves(there, parts.rows), addresses)
                ports = [free_port(self.hosts[self.rank]) for _ in range(2)]
                return {"stored": spool.stored(), "ports": ports}

            told = self._agreed(trade)
        spool.publish([facts["stored"] for facts in told], "petastore run_on_dataframe")
        lanes = Parts.of(sum(there), ranks=len(there)).lanes
        rows = LocalRows(folder, Shard(self.rank, len(there)), sum(there), lanes, self.job.restarts)
        return rows, self._environment([facts["ports"] for facts in told])

    def _trade(self, spool: Spool, all_moves: list[Move], addresses: list[tuple[str, int]]) -> None:
        given = [move for move in all_moves if move.giver == self.rank]
        if given:
            hand_out(self._listener, spool, given)
        for move in all_moves:
            if move.taker == self.rank:
                stored = storage_schema(self.job.schema)
                spool.append(taken(move, addresses[move.giver], self.job.secret, stored))

    def _agreed(self, work: Callable[[], dict[str, Any]]) -> list[dict[str, Any]]:
        """Run `work`, wait for all ranks, and return the results of all ranks.

        If `work` raised an error on any rank, raise the first rank's error on every rank.
        """
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
        """Return the environment variables that launchers of torch and TensorFlow set.

        Args:
            ports: Two free ports of each rank: one for `MASTER_PORT` (that of rank 0 is used), one for `TF_CONFIG`.
        """
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
    """A rank could not get its rows, so all ranks end, with the same message."""
