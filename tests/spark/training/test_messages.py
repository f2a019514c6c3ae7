"""Tests of message blocks: whole and in order on streams of short reads; a truncated block ends the stream."""

from __future__ import annotations

import io
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from petastore.spark.training.trainer import receive, send


class Dripping(io.RawIOBase):
    """A stream that returns few bytes per read, as pipes do."""

    def __init__(self, data: bytes, step: int) -> None:
        self._inner, self._step = io.BytesIO(data), step

    def read(self, size: int = -1) -> bytes:
        return self._inner.read(min(size, self._step))


def sent(messages: list[bytes]) -> bytes:
    stream = io.BytesIO()
    for message in messages:
        send(stream, message)
    return stream.getvalue()


def received(stream: Any) -> list[bytes]:
    found = []
    while (message := receive(stream)) is not None:
        found.append(message)
    return found


@given(st.lists(st.binary(max_size=40), max_size=5), st.integers(1, 9))
def test_message_blocks_round_trip(messages: list[bytes], step: int) -> None:
    assert received(Dripping(sent(messages), step)) == messages


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=4), st.integers(1, 28))
def test_truncated_message_block_ends_the_stream(messages: list[bytes], cut: int) -> None:
    cut = min(cut, len(messages[-1]) + 8)
    assert received(io.BytesIO(sent(messages)[:-cut])) == messages[:-1]
