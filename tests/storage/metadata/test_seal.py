"""Tests of the digest inside metadata files: it detects each bit flip and truncation."""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import ipc

from petastore.errors import MetadataError
from petastore.storage.files.whole_files import SEAL_KEY, UNSEALED, is_sealed, sealed

AGAIN = "write it again"


def arrow_file(**metadata: str) -> bytes:
    table = pa.table({"x": pa.array([1, 2, 3], pa.int8())}).replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def a_sealed_file(**metadata: str) -> bytes:
    return sealed(arrow_file(**metadata, **{SEAL_KEY: UNSEALED}), "the file")


def test_metadata_file_digest_is_sha256_of_the_file_with_a_zeroed_digest() -> None:
    data = a_sealed_file(note="x")
    said = ipc.open_file(pa.BufferReader(data)).schema.metadata[SEAL_KEY.encode()]
    kind, digits = said.split(b":")
    assert kind == b"sha256"
    assert hashlib.sha256(data.replace(digits, b"0" * 64)).hexdigest().encode() == digits
    assert is_sealed(data, "x", again=AGAIN)


def test_metadata_file_digest_detects_each_bit_flip() -> None:
    data = bytearray(a_sealed_file())
    for place in range(len(data)):
        data[place] ^= 1 << place % 8
        with pytest.raises(
            MetadataError, match=r"^the file is damaged: its .* bytes do not match the digest.*write it"
        ):
            is_sealed(bytes(data), "the file", again=AGAIN)
        data[place] ^= 1 << place % 8


def test_metadata_file_digest_detects_truncation() -> None:
    data = a_sealed_file()
    for end in range(len(data)):
        try:
            found = is_sealed(data[:end], "the file", again=AGAIN)
        except MetadataError:
            continue
        assert not found
        with pytest.raises(pa.ArrowInvalid):
            ipc.open_file(pa.BufferReader(data[:end]))


def test_metadata_file_of_an_older_version_has_no_digest() -> None:
    assert not is_sealed(arrow_file(note="x"), "the file", again=AGAIN)
    assert not is_sealed(b"", "the file", again=AGAIN)


def test_metadata_that_contains_the_reserved_digest_text_raises() -> None:
    with pytest.raises(
        MetadataError, match=r"must not contain the text 'sha256:0000.*, which is reserved for the digest"
    ):
        a_sealed_file(note=f"look: {UNSEALED}")


@given(st.lists(st.text("0123456789abcdef", min_size=64, max_size=64), max_size=3))
def test_metadata_file_may_contain_other_digests(others: list[str]) -> None:
    data = a_sealed_file(note=" ".join(f"sha256:{digits}" for digits in others if digits != "0" * 64))
    assert is_sealed(data, "x", again=AGAIN)
    assert not is_sealed(arrow_file(note=" ".join(others)), "x", again=AGAIN)
