"""HTTP server of byte ranges with ETags, like object stores: `python -m tests.servers.range_server DIR`.

It serves the files below one directory to GET and HEAD, whole or one range of them, and honours `If-Match`. That is all
of S3 that reading needs, too: with the bucket as first part of the path, clients of S3 read from it, signed or not. It
does nothing for each byte but hand it to the system, so what is measured is the client.

Run as a program it prints its port, and ends when its standard input does.
"""

from __future__ import annotations

import contextlib
import email.utils
import hashlib
import os
import re
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import unquote

__all__ = ["Listener", "RangeServer", "until_input_ends"]

_MOST_HEAD_BYTES = 64 * 1024
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


class Head(NamedTuple):
    """The first lines of a request or an answer."""

    line: str
    """Its first line."""

    fields: dict[str, str]
    """Its header fields by their names in small letters."""

    raw: bytes
    """As it came, with the empty line at its end."""


def read_head(connection: socket.socket, rest: bytes) -> tuple[Head | None, bytes]:
    """The next head of a connection, and what came behind it; None where the connection ends before one."""
    while b"\r\n\r\n" not in rest:
        more = connection.recv(65536)
        if not more or len(rest) > _MOST_HEAD_BYTES:
            return None, b""
        rest += more
    raw, _, rest = rest.partition(b"\r\n\r\n")
    lines = raw.decode("latin-1").split("\r\n")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    return Head(lines[0], fields, raw + b"\r\n\r\n"), rest


class Listener:
    """Accepts connections on loopback, one thread each, until it is closed.

    Args:
        port: Where; 0 is any free one.
    """

    def __init__(self, port: int = 0) -> None:
        self._listening = socket.create_server(("127.0.0.1", port), backlog=256)
        self.port: int = self._listening.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._ended = False
        self._accepting = threading.Thread(target=self._accept, name=f"{type(self).__name__}-accept", daemon=True)
        self._accepting.start()

    @property
    def url(self) -> str:
        """Where it is reached."""
        return f"http://127.0.0.1:{self.port}"

    def serve(self, connection: socket.socket) -> None:
        """What is done with one connection, in a thread of its own."""
        raise NotImplementedError

    def _accept(self) -> None:
        while not self._ended:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            with self._lock:
                self._open.add(connection)
                self._threads = [one for one in self._threads if one.is_alive()]
                self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the other side has gone
            self.serve(connection)
        with self._lock:
            self._open.discard(connection)
        connection.close()

    def close(self) -> None:
        """Ends it, and whatever it was answering."""
        self._ended = True
        with contextlib.suppress(OSError):  # wakes `accept`
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._accepting.join()
        with self._lock:
            threads = list(self._threads)
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _File(NamedTuple):
    modified_ns: int
    data: bytes
    etag: str


class RangeServer(Listener):
    """Serves the files below a directory.

    Args:
        root: The directory.
        port: Where; 0 is any free one.
    """

    def __init__(self, root: Path, port: int = 0) -> None:
        self._root = root
        self._files: dict[Path, _File] = {}
        super().__init__(port)

    def serve(self, connection: socket.socket) -> None:
        """Answers request after request."""
        rest = b""
        while True:
            head, rest = read_head(connection, rest)
            if head is None:
                return
            for piece in self._answer(head):
                connection.sendall(piece)

    def _file(self, place: Path) -> _File | None:
        try:
            found = place.stat()
        except OSError:
            return None
        if not place.is_file():
            return None
        known = self._files.get(place)
        if known is None or known.modified_ns != found.st_mtime_ns or len(known.data) != found.st_size:
            data = place.read_bytes()
            known = self._files[place] = _File(found.st_mtime_ns, data, f'"{hashlib.md5(data).hexdigest()}"')  # noqa: S324
        return known

    def _answer(self, head: Head) -> Iterator[bytes | memoryview]:
        method, path, _ = head.line.split(" ", 2)
        file = self._file(self._root / unquote(path.partition("?")[0]).lstrip("/"))
        if file is None:
            yield answer_head(404, "Not Found")
            return
        asked = head.fields.get("if-match")
        if asked is not None and asked != "*" and file.etag not in [one.strip() for one in asked.split(",")]:
            yield answer_head(412, "Precondition Failed", ETag=file.etag)
            return
        first, last = 0, len(file.data) - 1
        match = _RANGE.fullmatch(head.fields.get("range", ""))
        if match is not None:
            first, last = _range(match[1], match[2], len(file.data))
            if first > last:
                yield answer_head(416, "Range Not Satisfiable", Content_Range=f"bytes */{len(file.data)}")
                return
        fields = {
            "ETag": file.etag,
            "Last_Modified": email.utils.formatdate(file.modified_ns // 10**9, usegmt=True),
            "Accept_Ranges": "bytes",
        }
        if match is not None:
            fields["Content_Range"] = f"bytes {first}-{last}/{len(file.data)}"
        yield answer_head(206 if match else 200, "OK", last + 1 - first, **fields)
        if method != "HEAD":
            yield memoryview(file.data)[first : last + 1]


def _range(first: str, last: str, size: int) -> tuple[int, int]:
    if not first:
        return max(size - int(last), 0), size - 1
    return int(first), min(int(last) if last else size - 1, size - 1)


def answer_head(status: int, reason: str, length: int = 0, **fields: str) -> bytes:
    """The first lines of an answer, whose body has so many bytes."""
    lines = [f"HTTP/1.1 {status} {reason}", f"Content-Length: {length}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def until_input_ends(listener: Listener) -> None:
    """Prints the port, and serves until standard input ends: so does a child whose parent is gone."""
    print(listener.port, flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        sys.stdin.read()
    listener.close()


if __name__ == "__main__":
    until_input_ends(RangeServer(Path(sys.argv[1]), int(os.environ.get("PORT", "0"))))
