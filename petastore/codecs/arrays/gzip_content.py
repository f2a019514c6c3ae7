"""What a gzip file in memory holds, inflated without the GIL.

zlib-ng inflates faster than zlib, and is taken where it is installed (`pip install 'petastore[deflate]'`).
Arrow, which has zlib built in, is there always. Both check the checksum and the size of each member.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["GzipError", "gzip_content_by"]

ReadInto = Callable[[pa.Buffer, NDArray[np.uint8]], int]


class GzipError(ValueError):
    """The bytes are no gzip file, or a member is damaged. Never leaves the codecs."""


@functools.cache
def gzip_content_by(library: str | None = None) -> ReadInto:
    r"""A function that writes the content of a gzip file to the beginning of an array.

    It takes the file, of one member or many, and the array; it gives the number of bytes, at most those of the array,
    and raises GzipError. Only where the content is shorter than the array all checksums were looked at.

    Args:
        library: `"zlib-ng"`, `"arrow"`, or None for the fastest one that is installed.

    Raises:
        ImportError: zlib-ng is not installed, and was asked for.

    Example:
        >>> import gzip
        >>> members, content = gzip.compress(b"ab") + gzip.compress(b"c"), np.zeros(4, np.uint8)
        >>> gzip_content_by()(pa.py_buffer(members), content), content.tobytes()
        (3, b'abc\x00')
    """
    if library == "arrow":
        return _by_arrow
    try:
        return _by_zlib_ng()
    except ImportError:
        if library is not None:
            raise
        return _by_arrow


def _by_arrow(file: pa.Buffer, content: NDArray[np.uint8]) -> int:
    try:
        return int(pa.CompressedInputStream(pa.BufferReader(file), "gzip").readinto(content))
    except (pa.ArrowException, OSError) as problem:
        raise GzipError(str(problem)) from None


def _by_zlib_ng() -> ReadInto:
    from zlib_ng import gzip_ng, zlib_ng

    open_members: Any = gzip_ng.GzipNGFile  # zlib-ng has no type annotations for it
    damaged: Any = zlib_ng.error

    def by_zlib_ng(file: pa.Buffer, content: NDArray[np.uint8]) -> int:
        size = 0
        try:
            with open_members(fileobj=io.BytesIO(file)) as members:
                while more := members.readinto(content[size:].data):
                    size += more
        except (damaged, EOFError, OSError) as problem:
            raise GzipError(str(problem)) from None
        return size

    return by_zlib_ng
