"""Tests of a reader's buffers: reused between passes, and freed when the reader is closed."""

from __future__ import annotations

import numpy as np
import pytest

from petastore import Unischema, UnischemaField
from petastore.readers.loaded import arena as module
from petastore.readers.loaded.arena import Layout, ReusableMemory

LAYOUT = Layout.of(Unischema("s", [UnischemaField("x", np.float32)]), rows=100)


def test_memory_arena_is_reused_until_a_larger_one_is_needed() -> None:
    memory = ReusableMemory()
    assert memory.arena(LAYOUT, 0) is None
    first = memory.arena(LAYOUT, 100)
    assert first is not None
    assert first.rows == 100
    assert memory.arena(LAYOUT, 60) is first
    assert memory.arena(LAYOUT, 0) is None
    larger = memory.arena(LAYOUT, 101)
    assert larger is not None
    assert larger is not first
    assert memory.arena(LAYOUT, 101) is memory.arena(LAYOUT, 100) is larger


def test_memory_arena_is_none_when_it_cannot_be_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(module, "Arena", refuse)
    assert ReusableMemory().arena(LAYOUT, 100) is None


def test_buffer_released_after_close_is_not_kept() -> None:
    memory = ReusableMemory()
    held = memory.buffers.empty((2**20,), np.dtype(np.float32))
    arena = memory.arena(LAYOUT, 100)
    for _ in range(2):
        memory.close()
    del held
    assert memory.buffers.kept_bytes == 0
    assert memory.arena(LAYOUT, 100) is not arena
