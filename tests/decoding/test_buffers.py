"""Tests of the buffer pool: memory is reused once no view of it exists, and not before."""

from __future__ import annotations

import gc
import threading

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from petastore.decoding.buffers import Buffers


@given(
    st.lists(st.integers(0, 300), max_size=3).map(tuple),
    st.sampled_from(["u1", "f4", "f8", "M8[us]", "?", "c16"]),
)
def test_pooled_array_has_the_requested_shape_and_dtype(shape: tuple[int, ...], dtype: str) -> None:
    array = Buffers().empty(shape, dtype)
    assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert array.flags.aligned


def test_pooled_buffer_is_reused_after_its_last_view_is_freed() -> None:
    buffers = Buffers()
    array = buffers.empty((100, 1000), "f4")
    address = array.ctypes.data
    view = array[3:5].T
    del array
    assert buffers.kept_bytes == 0
    del view
    assert buffers.kept_bytes >= 400_000
    again = buffers.empty((99_000,), "f4")
    assert again.ctypes.data == address
    assert buffers.kept_bytes == 0


def test_pooled_buffer_is_not_reused_while_referenced() -> None:
    buffers, kept = Buffers(), []
    for number in range(20):
        array = buffers.empty((64, 1024), "i8")
        array[:] = number
        if number % 3 == 0:
            kept.append(array[number])
    assert [row.tolist() for row in kept] == [[number] * 1024 for number in range(0, 20, 3)]


def test_torch_tensor_keeps_its_pooled_buffer_alive() -> None:
    import torch  # imported only here, because it takes seconds

    buffers = Buffers()
    tensor = torch.from_numpy(buffers.empty((64, 1024), "f4"))
    gc.collect()
    assert buffers.kept_bytes == 0
    del tensor
    assert buffers.kept_bytes > 0


def test_closed_buffer_pool_keeps_no_memory() -> None:
    buffers = Buffers()
    before, after = buffers.empty((100_000,), "u1"), buffers.empty((100_000,), "u1")
    del before
    assert buffers.kept_bytes > 0
    buffers.close()
    assert buffers.kept_bytes == 0
    del after
    assert buffers.kept_bytes == 0
    array = buffers.empty((100_000,), "u1")
    del array
    assert buffers.kept_bytes == 0


def test_small_arrays_are_not_pooled() -> None:
    buffers = Buffers()
    array = buffers.empty((10,), "f4")
    assert array.base is None
    del array
    assert buffers.kept_bytes == 0


def test_pooled_buffers_are_not_given_to_two_threads() -> None:
    buffers, wrong = Buffers(), []

    def use(number: int) -> None:
        for _ in range(300):
            array = buffers.empty((20_000,), "i8")
            array[:] = number
            if not (array == number).all():
                wrong.append(number)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_pooled_buffer_serves_smaller_arrays() -> None:
    buffers = Buffers()
    sizes = [2**16, 2**20, 2**18 + 1]
    for size in sizes:
        array = buffers.empty((size,), np.uint8, room=2**20)
        assert array.shape == (size,)
        array[:] = 7
        del array
    assert buffers.kept_bytes == buffers.most_bytes == 2**20
