"""Fast S3 server for the files of a directory: `python -m tests.servers.s3_server DIR`.

Folders of the directory are buckets, and the files in them are objects, whose etags are MD5 digests. The server
supports list, head, get (whole or a range, with `If-Match`) and put. It checks no signatures, and has no versions and
no multipart uploads. It does little per request and nothing per byte, so benchmarks measure the client. Unsupported
requests get 501, not a false success.
"""

from __future__ import annotations

import datetime as dt
import os
import socket
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote
from xml.sax.saxutils import escape

from tests.servers.range_server import Head, RangeServer, answer_head, read_head, until_input_ends

__all__ = ["S3Server"]

_MOST_KEYS = 1000
_LIST_OPTIONS = {"list-type", "prefix", "delimiter", "max-keys", "continuation-token", "start-after", "encoding-type",
                 "fetch-owner", "marker"}  # fmt: skip


class _Asked(NamedTuple):
    """A parsed request."""

    method: str
    bucket: str
    key: str
    options: dict[str, str]


class S3Server(RangeServer):
    """Serves the folders of a directory as buckets.

    Args:
        root: The directory.
        port: The port; 0 chooses a free one.
    """

    def serve(self, connection: socket.socket) -> None:
        """Answer the requests of one connection."""
        rest = b""
        while True:
            head, rest = read_head(connection, rest)
            if head is None:
                return
            body, rest = _body(connection, head, rest)
            for piece in self._answer_of(head, body):
                connection.sendall(piece)

    def _answer_of(self, head: Head, body: bytes) -> Iterator[bytes | memoryview]:
        asked = _asked(head)
        if not (self._root / asked.bucket).is_dir():
            yield from _failure("404 Not Found", "NoSuchBucket", asked)
        elif asked.method == "PUT" and asked.key and not asked.options.keys() - {"x-id"}:
            yield from self._put(asked, head, body)
        elif asked.method == "HEAD" and not asked.key:
            yield answer_head(200, "OK")
        elif asked.method == "GET" and not asked.key and not asked.options.keys() - _LIST_OPTIONS:
            yield from _xml(200, _listing(asked, self._keys(asked.bucket, asked.options.get("prefix", "")), self))
        elif asked.method in {"GET", "HEAD"} and asked.key and not asked.options.keys() - {"x-id"}:
            is_there = self._file(self._root / asked.bucket / asked.key) is not None
            yield from self._answer(head) if is_there else _failure("404 Not Found", "NoSuchKey", asked)
        else:
            yield from _failure("501 Not Implemented", "NotImplemented", asked)

    def _put(self, asked: _Asked, head: Head, body: bytes) -> Iterator[bytes]:
        place = self._root / asked.bucket / asked.key
        if head.fields.get("if-none-match") == "*" and place.exists():
            yield from _failure("412 Precondition Failed", "PreconditionFailed", asked)
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        aside = self._root / f".{uuid.uuid4().hex}"
        aside.write_bytes(body)
        aside.replace(place)
        found = self._file(place)
        assert found is not None
        yield answer_head(200, "OK", ETag=found.etag)

    def _keys(self, bucket: str, prefix: str) -> list[str]:
        """Return the keys with a prefix in S3's order, which is by bytes."""
        root = self._root / bucket
        beneath = root / prefix.rpartition("/")[0]
        found = [os.path.relpath(Path(folder, name), root) for folder, _, names in os.walk(beneath) for name in names]
        return sorted((key for key in found if key.startswith(prefix)), key=os.fsencode)

    def shown(self, bucket: str, key: str) -> str:
        """Return an object's entry in a listing."""
        file = self._file(self._root / bucket / key)
        if file is None:  # deleted in the meantime
            return ""
        modified = dt.datetime.fromtimestamp(file.modified_ns // 10**9, dt.UTC).isoformat()
        return (
            f"<Contents><Key>{escape(key)}</Key><LastModified>{modified.removesuffix('+00:00')}.000Z</LastModified>"
            f"<ETag>{escape(file.etag)}</ETag><Size>{len(file.data)}</Size><StorageClass>STANDARD</StorageClass>"
            "</Contents>"
        )


def _asked(head: Head) -> _Asked:
    method, target, _ = head.line.split(" ", 2)
    path, _, query = target.partition("?")
    bucket, _, key = unquote(path).lstrip("/").partition("/")
    return _Asked(method, bucket, key, dict(parse_qsl(query, keep_blank_values=True)))


def _body(connection: socket.socket, head: Head, rest: bytes) -> tuple[bytes, bytes]:
    """Return the body of a request and the bytes after it."""
    length = int(head.fields.get("content-length", "0"))
    if length and head.fields.get("expect", "").lower() == "100-continue":
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    pieces, left = [rest[:length]], length - len(rest)
    while left > 0:
        piece = connection.recv(min(left, 1 << 20))
        if not piece:
            raise ConnectionError("the body ended early")
        pieces.append(piece)
        left -= len(piece)
    body = b"".join(pieces)
    in_chunks = head.fields.get("x-amz-content-sha256", "").startswith("STREAMING-")
    return (_unchunked(body) if in_chunks else body), rest[length:]


def _unchunked(body: bytes) -> bytes:
    """Return the contents of a chunked body; each chunk follows its hexadecimal length, and the last is empty."""
    pieces: list[bytes] = []
    at = 0
    while True:
        end = body.index(b"\r\n", at)
        length = int(body[at:end].partition(b";")[0], 16)
        if not length:
            return b"".join(pieces)
        pieces.append(body[end + 2 : end + 2 + length])
        at = end + 2 + length + 2


def _listing(asked: _Asked, keys: list[str], server: S3Server) -> str:
    """Return a page of keys; keys with the same prefix up to a delimiter are grouped."""
    options, prefix = asked.options, asked.options.get("prefix", "")
    after = max(options.get(name, "") for name in ("continuation-token", "start-after", "marker"))
    most, delimiter = min(int(options.get("max-keys", _MOST_KEYS)), _MOST_KEYS), options.get("delimiter", "")
    names = list(dict.fromkeys(_up_to(delimiter, key, len(prefix)) for key in keys))
    names = [name for name in names if os.fsencode(name) > os.fsencode(after)]
    page, goes_on = names[:most], len(names) > most
    shown = [f"<Name>{asked.bucket}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(page)}</KeyCount>"]
    shown.append(f"<MaxKeys>{most}</MaxKeys><IsTruncated>{str(goes_on).lower()}</IsTruncated>")
    if goes_on:
        shown.append(f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>")
        shown.append(f"<NextMarker>{escape(page[-1])}</NextMarker>")
    for name in page:
        if delimiter and name.endswith(delimiter) and name != prefix:
            shown.append(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>")
            continue
        shown.append(server.shown(asked.bucket, name))
    return f"<ListBucketResult>{''.join(shown)}</ListBucketResult>"


def _up_to(delimiter: str, key: str, start: int) -> str:
    end = key.find(delimiter, start) if delimiter else -1
    return key if end < 0 else key[: end + len(delimiter)]


def _xml(status: int, document: str) -> Iterator[bytes]:
    body = f'<?xml version="1.0" encoding="UTF-8"?>{document}'.encode()
    yield answer_head(status, "OK", len(body), Content_Type="application/xml")
    yield body


def _failure(status: str, code: str, asked: _Asked) -> Iterator[bytes]:
    number, _, reason = status.partition(" ")
    body = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
    yield answer_head(int(number), reason, 0 if asked.method == "HEAD" else len(body), Content_Type="application/xml")
    if asked.method != "HEAD":
        yield body


if __name__ == "__main__":
    until_input_ends(S3Server(Path(sys.argv[1]), int(os.environ.get("PORT", "0"))))
