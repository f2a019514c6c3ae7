"""HTTP proxy that simulates network faults: `python -m tests.servers.fault_proxy PORT [FAULTS]`.

It forwards HTTP/1.1 requests to one server, and returns the answers with a latency, a bandwidth and random faults.
Faults are throttling, resets in the middle of a body, truncated bodies, wrong etags, flipped bits, and missing answers.
A random fault depends only on the seed, the request and how often it was sent, so the order of threads does not matter.
The proxy counts requests and bytes.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import hashlib
import json
import socket
import struct
import sys
import threading
import time

from tests.servers.range_server import Head, Listener, read_head, until_input_ends

__all__ = ["Counted", "FaultProxy", "Faults"]

_PIECE_BYTES = 256 * 1024
_BY_CHANCE = (
    "throttled", "failed", "reset", "truncated", "cut", "flipped", "wrong_etag", "hangs", "delayed", "dropped",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Faults:
    """Faults to inject, as probabilities from 0 to 1."""

    latency_s: float = 0.0
    """Seconds before each answer begins."""

    bytes_per_s: float = 0.0
    """Bandwidth of all answers together; 0 is unlimited."""

    throttled: float = 0.0
    """The answer is 503 SlowDown."""

    failed: float = 0.0
    """The answer is 500."""

    reset: float = 0.0
    """The connection is reset in the middle of the body."""

    truncated: float = 0.0
    """The body is shorter than requested, with a matching Content-Length."""

    cut: float = 0.0
    """The connection ends before the body does."""

    flipped: float = 0.0
    """One bit of the body is flipped."""

    flip_at: int | None = None
    """The byte with the flipped bit, from the end if negative; None is the middle of the first piece."""

    most_flipped: int = 0
    """The number of bodies with a flipped bit; 0 is unlimited."""

    wrong_etag: float = 0.0
    """The answer has another etag."""

    hangs: float = 0.0
    """The request gets no answer."""

    delayed: float = 0.0
    """The answer is delayed by `delay_s`."""

    delay_s: float = 2.0

    dropped: float = 0.0
    """The connection is reset before the answer."""

    first: str = ""
    """The fault of the first answer to each distinct request; empty for random faults."""

    most_per_s: float = 0.0
    """Rate limit in requests per second, with a burst of a tenth of it; others get 503 SlowDown. 0 is unlimited."""

    seed: int = 0


@dataclasses.dataclass
class Counted:
    """Counters of requests, bytes and faults."""

    requests: int = 0
    bytes: int = 0
    """Bytes of bodies, counted before the head of the answer is sent."""

    faults: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    """The number of times that each fault was injected."""

    flipped: int = 0
    """The number of bodies that were chosen for a flipped bit."""

    heads: list[str] = dataclasses.field(default_factory=list)
    """The first line and the requested range of each request."""


class FaultProxy(Listener):
    """A proxy in front of a server on loopback.

    Args:
        upstream: The port of the server.
        faults: The faults to inject; may be changed at any time.
    """

    def __init__(self, upstream: int, faults: Faults | None = None) -> None:
        self._upstream = upstream
        self.faults = faults or Faults()
        self.counted = Counted()
        self._asked: collections.Counter[str] = collections.Counter()
        self._counting = threading.Lock()
        self._free_at = 0.0
        self._room = self._filled_at = 0.0
        self._closing = threading.Event()
        super().__init__()

    def begin(self, faults: Faults) -> None:
        """Reset the counters, and inject these faults from now on."""
        with self._counting:
            self.faults, self.counted = faults, Counted()
            self._asked.clear()

    def close(self) -> None:
        """Close the proxy, and end requests that hang."""
        self._closing.set()
        super().close()

    def serve(self, connection: socket.socket) -> None:
        """Forward the requests of one connection."""
        rest, behind = b"", b""
        with contextlib.closing(socket.create_connection(("127.0.0.1", self._upstream))) as server:
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open.add(server)
            try:
                while True:
                    head, rest = read_head(connection, rest)
                    if head is None:
                        return
                    fault = self._fault(head)
                    wait_s = self.faults.latency_s + (self.faults.delay_s if fault == "delayed" else 0.0)
                    if wait_s and self._closing.wait(wait_s):
                        return
                    if fault == "hangs":
                        self._closing.wait()
                        return
                    if fault == "dropped":
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        return
                    rest = _pass_body(connection, server, head, rest)
                    answer, behind = read_head(server, behind)
                    if answer is None:
                        return
                    behind, goes_on = self._answer(connection, server, answer, behind, fault, head)
                    if not goes_on:
                        return
            finally:
                with self._lock:
                    self._open.discard(server)

    def _fault(self, head: Head) -> str:
        """Return the fault of a request, mostly an empty string."""
        faults = self.faults
        key = f"{head.line} {head.fields.get('range', '')}"
        with self._counting:
            self.counted.requests += 1
            self.counted.heads.append(key)
            self._asked[key] += 1
            text = f"{faults.seed} {key} {self._asked[key]}"
            if not self._has_time():
                self.counted.faults["throttled"] += 1
                return "throttled"
            if faults.first and self._asked[key] == 1:
                self.counted.faults[faults.first] += 1
                return faults.first
        chance = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=6).digest(), "big") / 2**48
        for name in _BY_CHANCE:
            chance -= getattr(faults, name)
            if chance < 0:
                with self._counting:
                    self.counted.faults[name] += 1
                return name
        return ""

    def _may_flip(self) -> bool:
        with self._counting:
            self.counted.flipped += 1
            return not self.faults.most_flipped or self.counted.flipped <= self.faults.most_flipped

    def _has_time(self) -> bool:
        """Return whether a request is within the rate limit; the caller holds the lock."""
        most = self.faults.most_per_s
        if not most:
            return True
        now = time.monotonic()
        self._room = min(self._room + (now - self._filled_at) * most, max(most / 10, 1.0))
        self._filled_at = now
        if self._room < 1:
            return False
        self._room -= 1
        return True

    def _answer(
        self, connection: socket.socket, server: socket.socket, answer: Head, behind: bytes, fault: str, asked: Head
    ) -> tuple[bytes, bool]:
        """Forward an answer with its fault. Return the bytes that followed, and whether another answer may follow."""
        if answer.fields.get("transfer-encoding", "") == "chunked":
            connection.sendall(answer.raw + behind)
            _pass_until_end(server, connection)
            return b"", False
        has_body = not asked.line.startswith("HEAD") and answer.line.split(" ")[1] not in {"204", "304"}
        length = int(answer.fields.get("content-length", "0")) if has_body else 0
        if fault in {"throttled", "failed"}:
            status, code = ("503 Slow Down", "SlowDown") if fault == "throttled" else ("500 Oops", "InternalError")
            body = f"<Error><Code>{code}</Code><Message>made by the proxy</Message></Error>".encode()
            connection.sendall(
                f"HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n"
                f"Connection: close\r\n\r\n".encode()
                + (b"" if asked.line.startswith("HEAD") else body)
            )
            return b"", False
        raw, sent = answer.raw, length
        if fault == "wrong_etag" and "etag" in answer.fields:
            raw = raw.replace(answer.fields["etag"].encode(), b'"somebody-elses"')
        if fault in {"reset", "truncated", "cut"}:
            sent = length // 2
        if fault == "truncated":
            raw = raw.replace(f"Content-Length: {length}".encode(), f"Content-Length: {sent}".encode())
        with self._counting:  # counted before the head is sent, because some clients do not read the body
            self.counted.bytes += sent
        connection.sendall(raw)
        behind = self._pass(server, connection, sent, behind, flipped=fault == "flipped")
        if fault == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return behind, sent == length and answer.fields.get("connection", "").lower() != "close"

    def _pass(
        self, server: socket.socket, connection: socket.socket, length: int, behind: bytes, *, flipped: bool
    ) -> bytes:
        """Forward this many bytes at the given bandwidth; return the bytes that followed."""
        buffer = bytearray(_PIECE_BYTES)
        view = memoryview(buffer)
        left, behind = length, bytes(behind)
        flip_at = self.faults.flip_at
        flipped = flipped and length > 0 and self._may_flip()
        place = None if not flipped or flip_at is None else flip_at % max(length, 1)
        while left:
            if behind:
                got = min(len(behind), left, len(buffer))
                view[:got], behind = behind[:got], behind[got:]
            else:
                got = server.recv_into(buffer, min(left, len(buffer)))
                if not got:
                    break
            if flipped and place is None:
                place = length - left + got // 2
            if flipped and place is not None and length - left <= place < length - left + got:
                buffer[place - length + left] ^= 1
                flipped = False
            self._wait_for_room(got)
            connection.sendall(view[:got])
            left -= got
        return behind

    def _wait_for_room(self, length: int) -> None:
        if not self.faults.bytes_per_s:
            return
        with self._counting:
            self._free_at = max(self._free_at, time.monotonic()) + length / self.faults.bytes_per_s
            wait = self._free_at - time.monotonic()
        self._closing.wait(max(wait, 0))


def _pass_body(connection: socket.socket, server: socket.socket, head: Head, rest: bytes) -> bytes:
    """Forward a request and its body; return the bytes that followed."""
    if head.fields.get("expect", "").lower() == "100-continue":
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    raw = b"".join(line for line in head.raw.splitlines(keepends=True) if not line.lower().startswith(b"expect:"))
    server.sendall(raw)
    left = int(head.fields.get("content-length", "0"))
    while left:
        piece, rest = (rest[:left], rest[left:]) if rest else (connection.recv(min(left, _PIECE_BYTES)), b"")
        if not piece:
            break
        server.sendall(piece)
        left -= len(piece)
    return rest


def _pass_until_end(server: socket.socket, connection: socket.socket) -> None:
    """Forward a chunked body, which ends with an empty chunk."""
    last = b""
    while not last.endswith(b"0\r\n\r\n"):
        piece = server.recv(_PIECE_BYTES)
        if not piece:
            return
        connection.sendall(piece)
        last = (last + piece)[-5:]


if __name__ == "__main__":
    until_input_ends(FaultProxy(int(sys.argv[1]), Faults(**json.loads(sys.argv[2] if len(sys.argv) > 2 else "{}"))))
