"""HTTP server of byte ranges with ETags, like object stores: `python -m tests.servers.range_server DIR`.

It serves the files of one directory to GET and HEAD requests, whole or one range of them, and supports `If-Match`. S3
clients can read from it, signed or unsigned, with the bucket as the first part of the path. The server does no work per
byte except to pass it to the system, so benchmarks measure the client.

Run as a program, it prints its port, and ends when its standard input closes.
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
    """The head of an HTTP request or response."""

    line: str
    """The request or status line."""

    fields: dict[str, str]
    """Header fields by lowercase names."""

    raw: bytes
    """The original bytes, including the empty line at the end."""


def read_head(connection: socket.socket, rest: bytes) -> tuple[Head | None, bytes]:
    """Return the next head of a connection and the bytes after it; None if the connection ends before a head."""
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
        port: The port; 0 chooses a free one.
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
        """The URL of the server."""
        return f"http://127.0.0.1:{self.port}"

    def serve(self, connection: socket.socket) -> None:
        """Handle one connection, in its own thread."""
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
        with contextlib.suppress(OSError):  # the client has disconnected
            self.serve(connection)
        with self._lock:
            self._open.discard(connection)
        connection.close()

    def close(self) -> None:
        """Stop the server and close all connections."""
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
    """Serves the files of a directory.

    Args:
        root: The directory.
        port: The port; 0 chooses a free one.
    """

    def __init__(self, root: Path, port: int = 0) -> None:
        self._root = root
        self._files: dict[Path, _File] = {}
        super().__init__(port)

    def serve(self, connection: socket.socket) -> None:
        """Answer the requests of one connection."""
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
    """Return the head of a response with a body of this length."""
    lines = [f"HTTP/1.1 {status} {reason}", f"Content-Length: {length}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def until_input_ends(listener: Listener) -> None:
    """Print the port and serve until standard input closes, so that no child outlives its parent."""
    print(listener.port, flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        sys.stdin.read()
    listener.close()


if __name__ == "__main__":
    until_input_ends(RangeServer(Path(sys.argv[1]), int(os.environ.get("PORT", "0"))))
