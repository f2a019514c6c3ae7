"""Transport: messages between this process and one that it started, in shared memory.

A message is any value that pickle takes. Its arrays do not pass through the pickle: they lie in an *arena*, memory that
both processes see, and so does the pickle itself. The socket between them carries only where to look, in records of
one small size, so that neither side ever waits because the other one does not read.

An arena has no name. It is an anonymous file whose descriptor is handed over through the socket, so it ends with the
last process that maps it, whatever ends that: there is nothing to clean up after a kill, nothing in /dev/shm, and no
limit of /dev/shm to run into.

A channel has *slots*. In each, messages go to and fro in turns, and the two arenas of a slot, one for each direction,
are used again for the next message. A side that still holds an array of a message when it answers says so with the
answer, by itself: the other side then leaves that arena to it and takes a new one. So arrays may be kept, and are never
overwritten.

Both sides trust each other: this is for processes that run our own program, not for data from elsewhere.
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

__all__ = ["Arena", "Channel"]

_RECORD = struct.Struct("<BBxxIQ")
"""Slot; whether the last message of the slot is still in use; number of parts; bytes of the arena if it is new."""

_ONE_DESCRIPTOR = socket.CMSG_LEN(array.array("i").itemsize)

_ALIGNMENT = 64

_SMALL = 4096
"""Bytes below which an array goes with the pickle."""

_SMALLEST_ARENA = 256 * 1024


class Arena:
    """Memory that processes share, mapped into this one until nobody here sees it any more.

    Args:
        descriptor: Of the file that is mapped; it may be closed afterwards.
        size: Bytes.

    Example:
        >>> with anonymous_file(100) as file:
        ...     here, there = Arena(file.fileno(), 100), Arena(file.fileno(), 100)
        >>> here.bytes()[7] = 42
        >>> int(there.bytes()[7])
        42
    """

    __slots__ = ("_map", "size")

    def __init__(self, descriptor: int, size: int) -> None:
        self._map = mmap.mmap(descriptor, size)
        self.size = size

    def bytes(self) -> NDArray[np.uint8]:
        """All of it, as a new array that keeps it mapped."""
        return np.frombuffer(self._map, np.uint8)


def anonymous_file(size: int) -> Any:
    """A new open file of zeros that has no name.

    Args:
        size: Bytes.
    """
    if hasattr(os, "memfd_create"):
        file: Any = os.fdopen(os.memfd_create("petastore"), "r+b", buffering=0)
    else:
        file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - it is the caller's to close
    try:
        os.ftruncate(file.fileno(), size)
    except BaseException:
        file.close()
        raise
    return file


class Channel:
    """One end of a connection; not to be used by two threads at once, but for `hang_up`.

    Args:
        connection: One end of a pair of stream sockets; it is the channel's from now on.
        sentinel: A descriptor that becomes readable when the process at the other end is gone; None relies on the
            connection alone, which a child of that process may hold open.

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
        self._outgoing: dict[int, Arena] = {}
        self._incoming: dict[int, Arena] = {}
        self._received: dict[int, weakref.ref[NDArray[np.uint8]]] = {}

    def send(self, slot: int, message: object) -> None:
        """Sends a message.

        Args:
            slot: Where; the last message of this slot, if there was one, was received from the other side.
            message: Anything that pickle takes. Arrays are copied; nothing of it is referred to afterwards.

        Raises:
            EOFError: Nobody is at the other end any more.
            Exception: What pickle raises; nothing was sent then.
        """
        parts = _parts(message)
        lengths = np.array([len(part) for part in parts], dtype=np.int64)
        starts = _starts(lengths)
        arena, file = self._room(slot, int(starts[-1]))
        try:
            whole = arena.bytes()
            whole[: lengths.nbytes] = lengths.view(np.uint8)
            for part, start in zip(parts, starts.tolist(), strict=False):
                whole[start : start + len(part)] = part
            record = _RECORD.pack(slot, self._is_still_seen(slot), len(parts), 0 if file is None else arena.size)
            self._send_record(record, file)
        finally:
            if file is not None:
                file.close()

    def receive(self) -> tuple[int, Any]:
        """Waits for a message: its slot, and what was sent.

        Large arrays lie in memory that was shared for this message, writable, and keep it for as long as they live.

        Raises:
            EOFError: Nobody is at the other end any more, or `hang_up` was called.
        """
        slot, is_still_seen, count, size, descriptor = self._receive_record()
        if is_still_seen:
            self._outgoing.pop(slot, None)
        if descriptor is not None:
            try:
                self._incoming[slot] = Arena(descriptor, size)
            finally:
                os.close(descriptor)
        whole = self._incoming[slot].bytes()
        self._received[slot] = weakref.ref(whole)
        lengths = whole[: 8 * count].view(np.int64)
        starts = _starts(lengths)
        parts = [
            whole[start : start + length] for start, length in zip(starts.tolist(), lengths.tolist(), strict=False)
        ]
        # From a process that this one started, or was started by, to run its own program.
        return slot, pickle.loads(parts[0].data, buffers=parts[1:])  # noqa: S301

    def hang_up(self) -> None:
        """Ends the connection at both ends; whoever waits in `receive` wakes. May be called again, by any thread."""
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:  # it has ended already
            return

    def close(self) -> None:
        """Gives the connection back, and the arenas that nobody sees any more. May be called again."""
        self._connection.close()
        self._outgoing.clear()
        self._incoming.clear()

    def _room(self, slot: int, size: int) -> tuple[Arena, Any]:
        """The arena for a message, and its file where the other side does not know it yet."""
        arena = self._outgoing.get(slot)
        if arena is not None and arena.size >= size:
            return arena, None
        rounded = max(_SMALLEST_ARENA, 1 << (size - 1).bit_length())
        file = anonymous_file(rounded)
        self._outgoing[slot] = Arena(file.fileno(), rounded)
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
            raise EOFError("the process at the other end is gone") from problem

    def _receive_record(self) -> tuple[int, bool, int, int, int | None]:
        record, descriptors = b"", array.array("i")
        # Without blocking: it may be the sentinel that woke us, and nothing to read. (`socket.recv_fds` ignores flags.)
        flags = socket.MSG_DONTWAIT | getattr(socket, "MSG_CMSG_CLOEXEC", 0)
        while len(record) < _RECORD.size:
            self._watched.poll()
            try:
                more, ancillary, _, _ = self._connection.recvmsg(_RECORD.size - len(record), _ONE_DESCRIPTOR, flags)
            except OSError as problem:
                raise EOFError("the process at the other end is gone") from problem
            if not more:
                raise EOFError("the process at the other end is gone")
            record += more
            for _, _, data in ancillary:
                descriptors.frombytes(data[: descriptors.itemsize])
        return *_RECORD.unpack(record), descriptors[0] if descriptors else None


def _parts(message: object) -> list[NDArray[np.uint8]]:
    """The pickle of a message, and the memory of its large arrays."""
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
    """Where each part begins, after the table of their lengths; and, at the end, the bytes of all."""
    begins = np.concatenate([[lengths.nbytes], lengths])
    padded = -(-begins // _ALIGNMENT) * _ALIGNMENT
    return np.cumsum(padded)
