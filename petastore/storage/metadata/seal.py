"""The seal of a small file: the SHA-256 of all its bytes, which it carries itself.

The digest stands as text in the metadata of an Arrow IPC file, `petastore.digest`, and is computed over the whole file
with its 64 digits written as zeros, wherever they stand: an IPC file repeats its schema. So the file stays an ordinary
one, releases that know of no seal pass over it, and whoever does reads no byte of it before all of them are known to be
right.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterator

from petastore.errors import MetadataError

__all__ = ["SEAL_KEY", "UNSEALED", "is_sealed", "sealed"]

SEAL_KEY = "petastore.digest"
"""Key of the digest in the metadata of the file's schema."""

_KIND = b"sha256:"
_ZEROS = b"0" * 64
UNSEALED = (_KIND + _ZEROS).decode()
"""What is written under `SEAL_KEY` before the file is sealed."""

_DIGEST = re.compile(rb"[0-9a-f]{64}")
_TIMES = 2  # the schema of an IPC file stands at its begin and at its end
_MOST_TEXTS = 16


def sealed(data: bytes, source: str) -> bytes:
    """An Arrow IPC file whose metadata says `UNSEALED` under `SEAL_KEY`, with its digest in that place.

    Args:
        data: The file.
        source: What it is, for messages.

    Raises:
        MetadataError: Some other text of the file is `UNSEALED`, and would be changed.
    """
    if data.count(UNSEALED.encode()) != _TIMES:
        raise MetadataError(f"{source} has the text {UNSEALED!r} in it, which is the place of its digest; change that")
    return data.replace(UNSEALED.encode(), _KIND + hashlib.sha256(data).hexdigest().encode())


def is_sealed(data: bytes, source: str, *, again: str) -> bool:
    """Whether a file carries its digest, which is then right; False for one of a release that wrote none.

    Args:
        data: The file, from anywhere.
        source: Where it came from, for messages.
        again: How to get a new one, for messages.

    Raises:
        MetadataError: It carries a digest, but its bytes have another one.
    """
    if SEAL_KEY.encode() not in data:
        return False
    if any(_is_digest(data, text) for text in itertools.islice(_texts(data), _MOST_TEXTS)):
        return True
    raise MetadataError(
        f"{source} is damaged: its {len(data):,} bytes do not have the digest that stands in it, so they are not those "
        f"that were written; {again}"
    )


def _texts(data: bytes) -> Iterator[bytes]:
    """What may be the digest: each text that looks like one, once."""
    seen: set[bytes] = set()
    at = data.find(_KIND)
    while at >= 0:
        digest = _DIGEST.match(data, at + len(_KIND))
        if digest is not None and digest[0] not in seen:
            seen.add(digest[0])
            yield digest[0]
        at = data.find(_KIND, at + 1)


def _is_digest(data: bytes, text: bytes) -> bool:
    """Whether a text is the digest of the file that has zeros wherever it stands."""
    digest, written, whole = hashlib.sha256(), _KIND + text, memoryview(data)
    begin = 0
    while (at := data.find(written, begin)) >= 0:
        digest.update(whole[begin:at])
        digest.update(_KIND + _ZEROS)
        begin = at + len(written)
    digest.update(whole[begin:])
    return digest.hexdigest().encode() == text
