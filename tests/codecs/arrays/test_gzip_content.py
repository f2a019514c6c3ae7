"""Both libraries give what Python's gzip gives, and refuse what it refuses."""

from __future__ import annotations

import gzip
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.codecs.arrays.gzip_content import GzipError, gzip_content_by

LIBRARIES = ["zlib-ng", "arrow"]


@given(contents=st.lists(st.binary(max_size=300), min_size=1, max_size=5), library=st.sampled_from(LIBRARIES))
def test_members_are_read_end_to_end(contents: list[bytes], library: str) -> None:
    file, whole = b"".join(map(gzip.compress, contents)), b"".join(contents)
    assert gzip.decompress(file) == whole
    out = np.zeros(len(whole) + 1, np.uint8)
    assert gzip_content_by(library)(pa.py_buffer(file), out) == len(whole)
    assert out.tobytes() == whole + bytes(1)


@given(at=st.integers(0, 10**6), by=st.integers(1, 255), library=st.sampled_from(LIBRARIES))
def test_what_differs_is_refused(at: int, by: int, library: str) -> None:
    content = b"petastore" * 40
    file = bytearray(gzip.compress(content) + gzip.compress(content[::-1]))
    file[at % len(file)] ^= by
    out = np.zeros(2 * len(content) + 1, np.uint8)
    try:
        found = gzip_content_by(library)(pa.py_buffer(bytes(file)), out)
    except GzipError:
        return
    # A header has bytes that mean nothing to the content. Of what fills the array nothing is said: it may go on.
    assert found == len(out) or out[:found].tobytes() == content + content[::-1]


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_file_that_ends_early_is_refused(library: str) -> None:
    file = gzip.compress(bytes(range(256)))
    for size in range(1, len(file)):
        with pytest.raises(GzipError):
            gzip_content_by(library)(pa.py_buffer(file[:size]), np.zeros(300, np.uint8))


@pytest.mark.parametrize("library", LIBRARIES)
def test_no_more_is_inflated_than_there_is_room_for(library: str) -> None:
    out = np.zeros(10, np.uint8)
    assert gzip_content_by(library)(pa.py_buffer(gzip.compress(bytes([7]) * 10**7)), out) == 10
    assert (out == 7).all()


def test_without_zlib_ng_arrow_is_taken() -> None:
    program = """
import sys
sys.modules["zlib_ng"] = None
from petastore.codecs.arrays.gzip_content import gzip_content_by
assert gzip_content_by() is gzip_content_by("arrow")
try:
    gzip_content_by("zlib-ng")
except ImportError:
    print("refused")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "refused\n"
    assert gzip_content_by() is not gzip_content_by("arrow")
