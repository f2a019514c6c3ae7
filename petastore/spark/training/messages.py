"""What goes between a task of Spark and the process that trains: bytes, with their length before them. Pure."""

from __future__ import annotations

from typing import BinaryIO

__all__ = ["receive", "send"]

_LENGTH = 8


def send(stream: BinaryIO, message: bytes) -> None:
    """Writes a block.

    Raises:
        OSError: Nobody reads.
    """
    stream.write(len(message).to_bytes(_LENGTH, "little"))
    stream.write(message)
    stream.flush()


def receive(stream: BinaryIO) -> bytes | None:
    """The next block; None where the other side has ended.

    Example:
        >>> import io
        >>> stream = io.BytesIO()
        >>> send(stream, b"rows")
        >>> _ = stream.seek(0)
        >>> receive(stream), receive(stream)
        (b'rows', None)
    """
    head = _exactly(stream, _LENGTH)
    return None if head is None else _exactly(stream, int.from_bytes(head, "little"))


def _exactly(stream: BinaryIO, size: int) -> bytes | None:
    found = bytearray()
    while len(found) < size:
        some = stream.read(size - len(found))
        if not some:
            return None
        found += some
    return bytes(found)
