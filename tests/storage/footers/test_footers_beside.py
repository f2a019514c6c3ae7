"""Tests of footers packed in a file next to the manifest: they round-trip, and damaged ones are ignored."""

from __future__ import annotations

import uuid

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.inventory import DataFile
from petastore.storage.files.location import open_location
from petastore.storage.footers import footers
from petastore.storage.footers.footers import FOOTERS, FootersBeside, packed_footers
from petastore.storage.footers.tails import digest_of

encoded = st.lists(st.tuples(st.binary(min_size=1, max_size=300), st.booleans()), max_size=12)


def footer_of(found: FootersBeside, data: bytes, file: DataFile) -> bytes | None:
    """Write the packed footers to an in-memory dataset, and return the footer of a file from there."""
    location, store = open_location("memory://beside"), fsspec.filesystem("memory")
    store.pipe_file(f"/beside/{FOOTERS}", data)
    block = found.block_of(file)
    return None if block is None else found.footer_in(found.fetched(location, block, None), block, file)


def beside(given: list[tuple[bytes, bool]]) -> tuple[FootersBeside, bytes]:
    """Return packed footers of files, some of which have no etag, and their bytes."""
    pairs = list(enumerate(given))
    files = [DataFile(f"{n:03}", 9, digest_of(footer), etag='"a"' if told else "") for n, (footer, told) in pairs]
    packed = packed_footers(files, {f"{number:03}": footer for number, (footer, _) in pairs})
    return FootersBeside(
        tuple(files), np.array(packed.lengths, np.int64), np.array(packed.stored, np.int64)
    ), packed.data


@given(encoded, st.sampled_from([30, 200, 1 << 20]))
def test_packed_footers_are_read_from_blocks_of_any_size(given: list[tuple[bytes, bool]], block_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(footers, "BLOCK_BYTES", block_bytes)
        found, data = beside(given)
        assert found.can_be
        for file, (footer, told) in zip(found.files, given, strict=True):
            assert footer_of(found, data, file) == (footer if told else None)


@given(encoded.filter(lambda given: any(told for _, told in given)), st.integers(0), st.integers(0, 7))
def test_damaged_packed_footers_are_never_mixed_up(given: list[tuple[bytes, bool]], place: int, bit: int) -> None:
    found, data = beside(given)
    damaged = bytearray(data)
    damaged[place % len(damaged)] ^= 1 << bit
    for file, (footer, _) in zip(found.files, given, strict=True):
        for wrong in (bytes(damaged), data[: place % len(data)], b""):
            assert footer_of(found, wrong, file) in {None, footer}


def test_packed_footers_above_the_size_limit_are_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footers, "MOST_BYTES", 10)
    _, data = beside([(b"123456", True), (b"12345", True)])
    assert data == b""


@pytest.mark.parametrize(
    ("lengths", "stored"), [([-1, 5], [1, 1]), ([1 << 40, 5], [1, 1]), ([5, 5], [1 << 62, 1 << 62])]
)
def test_packed_footers_with_invalid_lengths_are_not_used(lengths: list[int], stored: list[int]) -> None:
    files = (DataFile("a", 9, "0" * 32), DataFile("b", 9, "1" * 32))
    assert not FootersBeside(files, np.array(lengths), np.array(stored)).can_be


def test_packed_footers_that_expand_beyond_the_manifest_length_are_ignored() -> None:
    found, _ = beside([(b"12345", True)])
    bomb = pa.compress(bytes(1 << 24), codec="zstd", asbytes=True)
    found = FootersBeside(found.files, found.lengths, np.array([len(bomb)]))
    assert footer_of(found, bomb, found.files[0]) is None


def test_packed_footers_are_read_from_their_file_if_it_exists() -> None:
    name = uuid.uuid4().hex
    location, store = open_location(f"memory://{name}"), fsspec.filesystem("memory")
    found, data = beside([(bytes([number]) * 50, number != 2) for number in range(5)])
    assert found.all_at(location) == {}
    store.pipe_file(f"/{name}/{FOOTERS}", data)
    assert found.all_at(location) == {f"{number:03}": bytes([number]) * 50 for number in range(5) if number != 2}
    store.rm(f"/{name}", recursive=True)
