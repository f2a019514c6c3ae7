"""Tests of the checksum of cache entries: every wrong byte, swapped blocks, shifts and truncation are detected."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.cache.entry_file import SIZE, checksum

BLOCK = 1 << 20
LONG = np.random.default_rng(1).bytes(2 * BLOCK + 12_345)


def of(data: bytes | bytearray, head: bytes = b"head") -> bytes:
    return checksum(head, memoryview(data))


@given(st.binary(max_size=200), st.binary(min_size=1, max_size=60), st.data())
def test_checksum_detects_every_wrong_byte(data: bytes, head: bytes, draw: st.DataObject) -> None:
    both = bytearray(data + head)
    both[draw.draw(st.integers(0, len(both) - 1))] ^= draw.draw(st.integers(1, 255))
    wrong = checksum(bytes(both[len(data) :]), memoryview(both)[: len(data)])
    assert len(wrong) == SIZE
    assert wrong != of(data, head)


@given(st.integers(0, len(LONG) - 1), st.integers(1, 255))
def test_checksum_detects_every_wrong_byte_in_long_data(place: int, change: int) -> None:
    wrong = bytearray(LONG)
    wrong[place] ^= change
    assert of(wrong) != of(LONG)


@pytest.mark.parametrize("bit", [0x80, 0x01])
def test_checksum_detects_the_same_bit_in_two_words(bit: int) -> None:
    for first, second in ((7, 15), (7, 71), (7, 1031), (15, BLOCK + 15), (7, BLOCK - 1)):
        wrong = bytearray(LONG)
        wrong[first] ^= bit
        wrong[second] ^= bit
        assert of(wrong) != of(LONG), (first, second)


@given(st.data(), st.sampled_from([4096, 65536, BLOCK]))
def test_checksum_detects_swapped_pages_and_blocks(draw: st.DataObject, size: int) -> None:
    places = st.integers(0, len(LONG) // size - 1)
    first, second = draw.draw(st.lists(places, min_size=2, max_size=2, unique=True))
    wrong = bytearray(LONG)
    wrong[first * size : (first + 1) * size] = LONG[second * size : (second + 1) * size]
    wrong[second * size : (second + 1) * size] = LONG[first * size : (first + 1) * size]
    assert of(wrong) != of(LONG)


@given(st.integers(1, 5000))
def test_checksum_detects_shifted_bytes(distance: int) -> None:
    assert of(LONG[distance:] + LONG[:distance]) != of(LONG)


@given(st.binary(max_size=100), st.binary(min_size=1, max_size=20))
def test_checksum_detects_truncation_and_trailing_zeros(data: bytes, rest: bytes) -> None:
    assert of(data) != of(data + rest)
    assert of(data) != of(data + b"\0")
