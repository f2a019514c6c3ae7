"""Messages between a process and its worker, in shared memory.

A message is any object that can be pickled. Its arrays are not copied into the pickle: the arrays and the pickle are
stored in an *arena*, a memory region that both processes map. The socket between the processes only transfers a small
record for each message. A process therefore never blocks because the other process does not read.

An arena is an anonymous file whose descriptor is sent through the socket. It is freed when the last process that maps
it ends, even if the processes are killed. Therefore no cleanup is needed, and the size limit of /dev/shm does not
apply.

A channel has *slots*. In each slot, the two processes send messages alternately. A slot has two arenas, one for each
direction, which are reused for the next message. If a process still references an array of a message when it answers,
the record of the answer has a flag. The other process then uses a new arena for its next message. A process may
therefore keep arrays of a message; they are never overwritten.

Messages are unpickled without checks. Use a channel only between processes that run petastore's own code.
"""

from __future__ import annotations

import array
import mmap
import os
import pickle
import select
import socket
import struct
import tempfile
import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Channel"]

_RECORD = struct.Struct("<BBxxIQ")
"""Record that announces a message: number of the slot; whether arrays of the slot's last received message are still
referenced; number of the message's parts (pickle and large arrays); size of a new arena, or 0 if the message is in the
arena that the other process has already mapped."""

_ONE_DESCRIPTOR = socket.CMSG_LEN(array.array("i").itemsize)

_ALIGNMENT = 64

_SMALL = 4096
"""Arrays with fewer bytes are stored in the pickle itself."""

_SMALLEST_ARENA = 256 * 1024


def anonymous_file(size: int) -> Any:
    """Return a new unnamed open file of zeros."""
    if hasattr(os, "memfd_create"):
        file: Any = os.fdopen(os.memfd_create("petastore"), "r+b", buffering=0)
    else:
        file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - the caller closes it
    try:
        os.ftruncate(file.fileno(), size)
    except BaseException:
        file.close()
        raise
    return file


class Channel:
    """One end of a connection between a process and its worker. For one thread at a time, except `hang_up`.

    Messages are sent in numbered slots; each slot has a shared-memory region (arena) for each direction.

    Args:
        connection: One end of a pair of stream sockets; the channel owns and closes it.
        sentinel: Descriptor that becomes readable when the other process ends. With None, the end is detected only by
            the connection, which a child of the other process may keep open.

    Example:
        >>> here, there = map(Channel, socket.socketpair())
        >>> here.send(0, {"x": np.arange(10_000)})
        >>> slot, message = there.receive()
        >>> there.send(slot, int(message["x"].sum()))
        >>> here.receive()
        (0, 49995000)
        >>> here.close(); there.close()
    """

    def __init__(self, connection: socket.socket, *, sentinel: int | None = None) -> None:
        self._connection = connection
        self._watched = select.poll()
        for descriptor in (connection.fileno(), *(() if sentinel is None else (sentinel,))):
            self._watched.register(descriptor, select.POLLIN)
        self._outgoing: dict[int, mmap.mmap] = {}
        self._incoming: dict[int, mmap.mmap] = {}
        self._received: dict[int, weakref.ref[NDArray[np.uint8]]] = {}

    def send(self, slot: int, message: object) -> None:
        """Copy a message to the shared memory of a slot, and notify the other process.

        Args:
            slot: Slot of the message; its previous message, if any, must have come from the other side.
            message: Any picklable value. Arrays are copied; no reference to the message is kept.

        Raises:
            EOFError: The other process has ended.
            Exception: The message cannot be pickled; nothing was sent.
        """
        parts = _parts(message)
        lengths = np.array([len(part) for part in parts], dtype=np.int64)
        starts = _starts(lengths)
        arena, file = self._room(slot, int(starts[-1]))
        try:
            whole = np.frombuffer(arena, np.uint8)
            whole[: lengths.nbytes] = lengths.view(np.uint8)
            for part, start in zip(parts, starts.tolist(), strict=False):
                whole[start : start + len(part)] = part
            record = _RECORD.pack(slot, self._is_still_seen(slot), len(parts), 0 if file is None else len(arena))
            self._send_record(record, file)
        finally:
            if file is not None:
                file.close()

    def receive(self) -> tuple[int, Any]:
        """Wait for a message; return the number of its slot, and the message.

        Large arrays are writable and use the shared memory of this message, which they keep alive.

        Raises:
            EOFError: The other process has ended, or `hang_up` was called.
        """
        slot, is_still_seen, count, size, descriptor = self._receive_record()
        if is_still_seen:
            self._outgoing.pop(slot, None)
        if descriptor is not None:
            try:
                self._incoming[slot] = mmap.mmap(descriptor, size)
            finally:
                os.close(descriptor)
        whole = np.frombuffer(self._incoming[slot], np.uint8)
        self._received[slot] = weakref.ref(whole)
        lengths = whole[: 8 * count].view(np.int64)
        starts = _starts(lengths)
        parts = [
            whole[start : start + length] for start, length in zip(starts.tolist(), lengths.tolist(), strict=False)
        ]
        # The message comes from a process that this process started, or that started this process.
        return slot, pickle.loads(parts[0].data, buffers=parts[1:])  # noqa: S301

    def hang_up(self) -> None:
        """Close the connection at both ends, and wake `receive`. May be called again, by any thread."""
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:  # the other process has already ended
            return

    def close(self) -> None:
        """Close the connection, and release arenas (shared memory) that no array uses. May be called again."""
        self._connection.close()
        self._outgoing.clear()
        self._incoming.clear()

    def _room(self, slot: int, size: int) -> tuple[mmap.mmap, Any]:
        """Return the shared memory (arena) of a slot for a message of `size` bytes, and its file if the memory is new.

        The caller sends the file to the other process and closes it; for an arena that both processes map, it is None.
        """
        arena = self._outgoing.get(slot)
        if arena is not None and len(arena) >= size:
            return arena, None
        rounded = max(_SMALLEST_ARENA, 1 << (size - 1).bit_length())
        file = anonymous_file(rounded)
        self._outgoing[slot] = mmap.mmap(file.fileno(), rounded)
        return self._outgoing[slot], file

    def _is_still_seen(self, slot: int) -> bool:
        received = self._received.pop(slot, None)
        is_seen = received is not None and received() is not None
        if is_seen:
            self._incoming.pop(slot)
        return is_seen

    def _send_record(self, record: bytes, file: Any) -> None:
        try:
            if file is None:
                self._connection.sendall(record)
            else:
                socket.send_fds(self._connection, [record], [file.fileno()])
        except OSError as problem:
            raise EOFError("the process at the other end of the connection has ended") from problem

    def _receive_record(self) -> tuple[int, bool, int, int, int | None]:
        record, descriptors = b"", array.array("i")
        # Does not block, because the sentinel may have woken this thread without data to read. (`socket.recv_fds`
        # ignores flags.)
        flags = socket.MSG_DONTWAIT | getattr(socket, "MSG_CMSG_CLOEXEC", 0)
        while len(record) < _RECORD.size:
            self._watched.poll()
            try:
                more, ancillary, _, _ = self._connection.recvmsg(_RECORD.size - len(record), _ONE_DESCRIPTOR, flags)
            except OSError as problem:
                raise EOFError("the process at the other end of the connection has ended") from problem
            if not more:
                raise EOFError("the process at the other end of the connection has ended")
            record += more
            for _, _, data in ancillary:
                descriptors.frombytes(data[: descriptors.itemsize])
        return *_RECORD.unpack(record), descriptors[0] if descriptors else None


def _parts(message: object) -> list[NDArray[np.uint8]]:
    """Return the pickle of a message as bytes, followed by the memory of its large arrays."""
    large: list[NDArray[np.uint8]] = []

    def goes_with_the_pickle(buffer: pickle.PickleBuffer) -> bool:
        memory = buffer.raw()
        if memory.nbytes < _SMALL:
            return True
        large.append(np.frombuffer(memory, np.uint8))
        return False

    head = pickle.dumps(message, protocol=5, buffer_callback=goes_with_the_pickle)
    return [np.frombuffer(head, np.uint8), *large]


def _starts(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the byte offset of each part of a message in shared memory, and the total size.

    Shape (parts + 1,); parts are aligned to 64 bytes.
    """
    begins = np.concatenate([[lengths.nbytes], lengths])
    padded = -(-begins // _ALIGNMENT) * _ALIGNMENT
    return np.cumsum(padded)
