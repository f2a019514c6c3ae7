"""Rows that go from one rank's disk to another's, over a connection that knows a secret of the job.

Who gives listens, and who takes connects. No rank does both, so nobody waits for somebody who waits.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from petastore.errors import WorkerError
from petastore.spark.training.moves import Move
from petastore.spark.training.spool import Spool

__all__ = ["Door", "free_port", "taken"]

_END = b""


class Door:
    """Where a rank gives rows away; closed after a `with` block.

    Args:
        host: The name or address under which other hosts know this one.
        secret: What all ranks of the job know, and nobody else.
    """

    def __init__(self, host: str, secret: bytes) -> None:
        self._host, self._secret = host, secret
        self._listener: Listener | None = None

    def open(self, *, visitors: int) -> int:
        """Lets others come.

        Args:
            visitors: How many at a time, at most.

        Returns:
            The port to which they come.

        Raises:
            WorkerError: This host cannot listen under its own name.
        """
        try:
            self._listener = Listener((self._host, 0), backlog=max(1, visitors), authkey=self._secret)
        except OSError as problem:
            raise WorkerError(
                f"this executor cannot listen at {self._host!r}, which is how Spark calls it: {problem}. Executors "
                "that train on a DataFrame send each other rows"
            ) from problem
        address: Any = self._listener.address
        return int(address[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._listener is not None:
            self._listener.close()

    def hand_out(self, spool: Spool, moves: Sequence[Move]) -> None:
        """Gives rows to those who come for them.

        Args:
            spool: What to give of.
            moves: Of this rank; each taker comes once.

        Raises:
            WorkerError: A taker is gone.
            StorageError: The disk refused.
        """
        with contextlib.ExitStack() as stack:
            visitors: dict[int, Connection[Any, Any]] = {}
            for _ in moves:
                visitor = stack.enter_context(self._next_visitor())
                visitors[int.from_bytes(visitor.recv_bytes(8), "little")] = visitor
            for move in moves:
                self._send(spool.take_last(move.rows), visitors[move.taker], move)

    def _next_visitor(self) -> Connection[Any, Any]:
        if self._listener is None:
            raise WorkerError("nobody can come for rows before the door is open")
        try:
            while True:
                # Who does not know the secret is sent away, whoever that is.
                with contextlib.suppress(AuthenticationError):
                    return self._listener.accept()
        except OSError as problem:
            raise WorkerError(f"an executor that was to take rows did not come: {problem}") from problem

    @staticmethod
    def _send(batches: Iterator[pa.RecordBatch], visitor: Connection[Any, Any], move: Move) -> None:
        try:
            for batch in batches:
                visitor.send_bytes(batch.serialize())
            visitor.send_bytes(_END)
        except (ConnectionError, EOFError) as problem:
            raise WorkerError(f"rank {move.taker} is gone, which was to take {move.rows:,} rows: {problem}") from None


def taken(move: Move, address: tuple[str, int], secret: bytes, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a move, as the giver sends them.

    Args:
        move: To this rank.
        address: Of the giver.
        secret: What all ranks of the job know.
        schema: Of stored cells.

    Raises:
        WorkerError: By `next`: the giver is gone, or sends other rows than it was to.
    """
    rows = 0
    try:
        with Client(address, authkey=secret) as giver:
            giver.send_bytes(move.taker.to_bytes(8, "little"))
            while message := giver.recv_bytes():
                batch = pa.ipc.read_record_batch(pa.py_buffer(message), schema)
                rows += batch.num_rows
                yield batch
    except (OSError, EOFError) as problem:
        raise WorkerError(f"rank {move.giver} is gone, which was to give {move.rows:,} rows: {problem}") from problem
    if rows != move.rows:
        raise WorkerError(f"rank {move.giver} was to give {move.rows:,} rows, but gave {rows:,}")


def free_port(host: str) -> int:
    """A port of this host that nobody uses now.

    Raises:
        OSError: The host cannot listen under that name.
    """
    with socket.socket() as found:
        found.bind((host, 0))
        return int(found.getsockname()[1])
