"""Row exchange between ranks, over connections authenticated by a shared secret.

`moves` computes how many rows are sent from rank to rank, so that each rank has an equal part. A rank that receives
rows connects to the ranks that send rows. No rank both sends and receives, so there is no deadlock.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

import pyarrow as pa

from petastore.errors import InvalidArgumentError, WorkerError
from petastore.spark.training.spool import Spool

__all__ = ["Move", "hand_out", "listening", "moves", "taken"]


@dataclasses.dataclass(frozen=True, slots=True)
class Move:
    """Planned transfer of `rows` rows from rank `giver` to rank `taker`.

    The giver sends its last rows.
    """

    giver: int
    taker: int
    rows: int


def moves(there: Sequence[int], wanted: Sequence[int]) -> list[Move]:
    """Return the transfers that give each rank its required number of rows.

    They move as few rows as possible, and are in the order of sending ranks.

    Args:
        there: Number of rows of each rank.
        wanted: Required number of rows of each rank, with the same sum.

    Raises:
        InvalidArgumentError: The sums differ.

    Example:
        >>> moves([10, 0, 2], [4, 4, 4])
        [Move(giver=0, taker=1, rows=4), Move(giver=0, taker=2, rows=2)]
    """
    if sum(there) != sum(wanted) or len(there) != len(wanted):
        raise InvalidArgumentError(
            f"an exchange must keep the numbers of rows and ranks, got {sum(there):,} rows on {len(there)} ranks "
            f"before and {sum(wanted):,} rows on {len(wanted)} ranks after"
        )
    missing = [[rank, want - have] for rank, (have, want) in enumerate(zip(there, wanted, strict=True)) if want > have]
    found = []
    for rank, (have, want) in enumerate(zip(there, wanted, strict=True)):
        spare = have - want
        while spare > 0:
            taker, lacks = missing[0]
            rows = min(spare, lacks)
            found.append(Move(rank, taker, rows))
            spare -= rows
            missing[0][1] -= rows
            if rows == lacks:
                missing.pop(0)
    return found


_END = b""


def listening(host: str, secret: bytes, *, visitors: int) -> tuple[Listener, int]:
    """Listen for connections of ranks that need rows; return the listener and its port.

    The end of a `with` block of the listener closes it.

    Args:
        host: Name or address of this host for other hosts.
        secret: Shared secret of the job's ranks.
        visitors: Maximum number of connections that wait until they are accepted.

    Raises:
        WorkerError: This host cannot listen on its own name or address.
    """
    try:
        listener = Listener((host, 0), backlog=max(1, visitors), authkey=secret)
    except OSError as problem:
        raise WorkerError(
            f"the executor must be able to listen at {host!r}, its host name in Spark, because executors exchange "
            f"rows: {problem}. Set spark.executor.bindAddress or the host's name"
        ) from problem
    address: Any = listener.address
    return listener, int(address[1])


def hand_out(listener: Listener, spool: Spool, moves: Sequence[Move]) -> None:
    """Send rows to the other ranks as planned, and remove them from the spool.

    Args:
        listener: Listener of this rank.
        spool: Rows to send from.
        moves: Moves of this rank; each receiving rank connects once.

    Raises:
        WorkerError: A receiving rank has ended.
        StorageError: A disk operation failed.
    """
    with contextlib.ExitStack() as stack:
        visitors: dict[int, Connection[Any, Any]] = {}
        for _ in moves:
            visitor = stack.enter_context(_next_visitor(listener))
            visitors[int.from_bytes(visitor.recv_bytes(8), "little")] = visitor
        for move in moves:
            _send(spool.take_last(move.rows), visitors[move.taker], move)


def _next_visitor(listener: Listener) -> Connection[Any, Any]:
    try:
        while True:
            # Reject every peer that does not know the secret.
            with contextlib.suppress(AuthenticationError):
                return listener.accept()
    except OSError as problem:
        raise WorkerError(f"an executor that needs rows did not connect: {problem}") from problem


def _send(batches: Iterator[pa.RecordBatch], visitor: Connection[Any, Any], move: Move) -> None:
    try:
        for batch in batches:
            visitor.send_bytes(batch.serialize())
        visitor.send_bytes(_END)
    except (ConnectionError, EOFError) as problem:
        raise WorkerError(f"rank {move.taker} failed before it received {move.rows:,} rows: {problem}") from None


def taken(move: Move, address: tuple[str, int], secret: bytes, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Connect to a sending rank, and yield the rows of a move as record batches.

    Args:
        move: Planned transfer to this rank.
        address: Address of the sending rank.
        secret: Shared secret of the job's ranks.
        schema: Arrow schema of the stored cells.

    Raises:
        WorkerError: By `next`: the sending rank has ended, or sends other rows than planned.
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
        raise WorkerError(f"rank {move.giver} failed before it sent {move.rows:,} rows: {problem}") from problem
    if rows != move.rows:
        raise WorkerError(f"rank {move.giver} must send {move.rows:,} rows, got {rows:,}")
