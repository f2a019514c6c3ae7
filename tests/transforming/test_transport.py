"""Tests of messages over shared memory: round trip, reuse without overwriting referenced arrays, closing."""

from __future__ import annotations

import os
import pickle
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from petastore.transforming.transport import Channel
from tests.pace import LONG
from tests.tier import examples

DTYPES = hnp.scalar_dtypes() | st.just(np.dtype("M8[us]")) | st.just(np.dtype("m8[ns]"))


@pytest.fixture
def channels() -> Iterator[tuple[Channel, Channel]]:
    here, there = map(Channel, socket.socketpair())
    yield here, there
    here.close()
    there.close()


def shared_here() -> int:
    """Return the number of shared memory arenas that this process maps."""
    return Path("/proc/self/maps").read_text(encoding="utf-8").count("/memfd:petastore")


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    arrays=st.lists(hnp.arrays(DTYPES, hnp.array_shapes(min_dims=1, max_dims=3, max_side=40, min_side=0)), max_size=4),
    words=st.lists(st.none() | st.text()),
    repeats=st.integers(1, 400),
)
def test_shared_memory_message_equals_the_sent_one(
    channels: tuple[Channel, Channel], arrays: list[Any], words: list[str | None], repeats: int
) -> None:
    here, there = channels
    objects = np.empty(len(arrays), object)
    objects[:] = [np.concatenate([array] * repeats) for array in arrays]
    message: dict[str, Any] = {
        "words": words,
        "arrays": [np.concatenate([array] * repeats) for array in arrays],
        "objects": objects,
    }
    here.send(0, message)
    slot, found = there.receive()
    assert slot == 0
    assert found["words"] == words
    for came, went in zip(found["arrays"] + list(found["objects"]), message["arrays"] + list(objects), strict=True):
        assert came.dtype == went.dtype
        assert came.flags.writeable
        np.testing.assert_array_equal(came, went)
        del came
    del found
    there.send(0, None)
    assert here.receive() == (0, None)


def test_kept_shared_memory_arrays_are_never_overwritten(channels: tuple[Channel, Channel]) -> None:
    here, there = channels
    kept = []
    for number in range(10):
        here.send(0, np.full(10_000, number))
        kept.append(there.receive()[1])
        there.send(0, None)
        here.receive()
    assert [array[0] for array in kept] == list(range(10))
    assert all((array == number).all() for number, array in enumerate(kept))


def test_shared_memory_is_reused_when_unreferenced(channels: tuple[Channel, Channel]) -> None:
    here, there = channels
    before = shared_here()
    for number in range(20):
        here.send(0, np.full(10_000, number))
        assert there.receive()[1].sum() == 10_000 * number
        there.send(0, np.full(20_000, number))
        assert here.receive()[1].sum() == 20_000 * number
    assert shared_here() - before == 4  # two arenas, each mapped at both ends


def test_closed_shared_memory_channel_unmaps_its_memory(channels: tuple[Channel, Channel]) -> None:
    before = shared_here()
    here, there = channels
    here.send(0, np.zeros(10_000))
    assert there.receive()[1].sum() == 0
    assert shared_here() > before
    here.close()
    there.close()
    assert shared_here() == before


def test_shared_memory_grows_for_larger_messages(channels: tuple[Channel, Channel]) -> None:
    here, there = channels
    for size in (1, 10_000, 1_000_000, 100):
        here.send(0, np.arange(size))
        np.testing.assert_array_equal(there.receive()[1], np.arange(size))
        there.send(0, None)
        here.receive()


def test_shared_memory_slots_are_independent(channels: tuple[Channel, Channel]) -> None:
    here, there = channels
    here.send(0, np.full(5000, 1))
    here.send(1, np.full(5000, 2))
    assert [(slot, message[0]) for slot, message in (there.receive(), there.receive())] == [(0, 1), (1, 2)]
    there.send(0, "one")
    there.send(1, "two")
    assert [here.receive(), here.receive()] == [(0, "one"), (1, "two")]


def test_unpicklable_message_is_not_sent(channels: tuple[Channel, Channel]) -> None:
    here, there = channels
    with pytest.raises((pickle.PicklingError, AttributeError)):
        here.send(0, lambda: None)
    here.send(0, "after it")
    assert there.receive() == (0, "after it")


def test_sending_never_blocks_on_the_receiver(channels: tuple[Channel, Channel]) -> None:
    here, there = channels
    here.send(0, "x" * 10_000_000)
    there.send(1, "y" * 10_000_000)
    assert len(there.receive()[1]) == len(here.receive()[1]) == 10_000_000


def test_channel_raises_eof_after_the_last_message_of_a_closed_peer(channels: tuple[Channel, Channel]) -> None:
    here, there = channels
    here.send(0, "last words")
    here.close()
    assert there.receive() == (0, "last words")
    with pytest.raises(EOFError):
        there.receive()
    with pytest.raises(EOFError):
        there.send(0, None)


def test_hanging_up_a_channel_wakes_a_waiting_receiver(channels: tuple[Channel, Channel]) -> None:
    here, _ = channels
    woken: list[BaseException] = []

    def waits() -> None:
        try:
            here.receive()
        except EOFError as problem:
            woken.append(problem)

    waiter = threading.Thread(target=waits)
    waiter.start()
    here.hang_up()
    waiter.join(LONG)
    assert len(woken) == 1
    here.hang_up()


def test_channel_receive_raises_eof_when_the_other_process_ends() -> None:
    ours, theirs = socket.socketpair()
    watched, ends = os.pipe()
    here = Channel(ours, sentinel=watched)
    os.close(ends)
    with pytest.raises(EOFError):
        here.receive()
    here.close()
    theirs.close()
    os.close(watched)


def test_shared_memory_uses_an_unnamed_file_without_memfd(
    channels: tuple[Channel, Channel], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    here, there = channels
    here.send(0, np.arange(100_000))
    np.testing.assert_array_equal(there.receive()[1], np.arange(100_000))
    assert list(tmp_path.iterdir()) == []
