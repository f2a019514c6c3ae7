"""Tests of `.npy` headers: written and parsed like NumPy's; invalid headers raise, and no code in them runs."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from petastore.codecs.arrays.npy import MAX_HEADER_BYTES, NpyError, array_bytes, header_of, npy_header_bytes

DTYPES = st.sampled_from(["<i4", ">f8", "|b1", "<U3", "S2", "<M8[ms]", "<c16", ">u2"])


def saved(array: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def cell(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


def cell_of(header: str, payload: bytes = b"", version: tuple[int, int] = (1, 0)) -> NDArray[np.uint8]:
    text = header.encode("latin1")
    size = len(text).to_bytes(2 if version == (1, 0) else 4, "little")
    return cell(b"\x93NUMPY" + bytes(version) + size + text + payload)


@given(DTYPES, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3), st.booleans())
def test_npy_headers_are_written_and_parsed_like_numpy(dtype: str, shape: Any, is_fortran: bool) -> None:
    array = np.zeros(shape, dtype, order="F" if is_fortran else "C")
    data = saved(array)
    assert array_bytes(array) == data
    assert npy_header_bytes(array) == data[: len(data) - array.nbytes]
    header = header_of(cell(data))
    assert (header.dtype, header.shape, header.payload) == (array.dtype, array.shape, array.nbytes)
    assert header.size + header.payload == len(data)
    if array.size > 1:
        assert header.strides == array.strides or 1 in array.shape


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<i4', 'fortran_order': False, 'shape': (3,), }",
        "{'shape': (3L,), 'fortran_order': False, 'descr': '<i4'}",
        '{"descr":"<i4","fortran_order":False,"shape":(3,)}\n',
    ],
)
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_npy_headers_of_other_writers_are_parsed(header: str, version: tuple[int, int]) -> None:
    found = header_of(cell_of(header, bytes(12), version))
    assert (found.dtype, found.shape, found.fortran_order) == (np.dtype("<i4"), (3,), False)


GOOD = {"descr": "'<i4'", "fortran_order": "False", "shape": "(3,)"}


def spelled(**changes: str) -> str:
    return "{" + ", ".join(f"'{name}': {value}" for name, value in {**GOOD, **changes}.items()) + "}"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (cell(b""), r"the cell does not begin with the \.npy magic bytes"),
        (cell(b"\x93NUMPZ" + bytes(9)), r"the cell does not begin with the \.npy magic bytes"),
        (cell_of("x", version=(9, 0)), r"the \.npy version must be 1\.0, 2\.0 or 3\.0, got 9\.0"),
        (
            cell(b"\x93NUMPY\x02\x00" + (MAX_HEADER_BYTES + 1).to_bytes(4, "little")),
            "must have at most 10,000 bytes, got 10,001",
        ),
        (cell(b"\x93NUMPY\x01\x00\xff\x00{}"), "the cell is truncated inside the .npy header"),
        (cell_of("[1]"), "the .npy header is not a dict"),
        (cell_of("{__import__('os')}"), "the .npy header must have descr, fortran_order and shape only, got"),
        (cell_of(spelled(more="(1,)")), "the .npy header must have descr, fortran_order and shape only, got"),
        (
            cell_of(spelled()[:-1] + ", 'descr': '<i8'}"),
            "the .npy header must have descr, fortran_order and shape only, got",
        ),
        (cell_of("{'descr': '<i4'}"), "the .npy header must have descr, fortran_order and shape only, got"),
        (cell_of(spelled(fortran_order="(1,)")), "fortran_order in the .npy header must be True or False"),
        (
            cell_of(spelled(descr="'|O'")),
            r"the dtype in the .npy header must be numbers, booleans, times, text or bytes, got '\|O'",
        ),
        (
            cell_of(spelled(descr="True")),
            "the dtype in the .npy header must be numbers, booleans, times, text or bytes, got None",
        ),
        (cell_of(spelled(descr="'<i3'")), "the dtype '<i3' in the .npy header is unknown to NumPy"),
        (cell_of(spelled(shape="(3)")), "the shape in the .npy header is not a tuple of ints"),
        (cell_of(spelled(shape="True")), "the shape in the .npy header is not a tuple of ints"),
        (cell_of(spelled(shape="(9999999999999999999,)")), "is too large"),
        (cell_of(spelled(shape=f"({'1,' * 33})")), "is too large"),
        (cell_of(spelled(shape="(0, 4000000000)")), "no elements, but its shape"),
        (cell_of(spelled(shape="(0,)", descr="'<U90000000'")), "no elements, but"),
        (cell_of(spelled(), bytes(11)), r"shape \(3,\) of int32, which takes 12 bytes, but 11 bytes follow"),
        (cell_of(spelled(), bytes(13)), "13 bytes follow"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_unreadable_npy_raises_with_the_reason(data: NDArray[np.uint8], said: str) -> None:
    with pytest.raises(NpyError, match=said):
        header_of(data)


@given(st.data())
def test_damaged_npy_raises_or_decodes_as_declared(data: st.DataObject) -> None:
    damaged = bytearray(saved(np.arange(6, dtype=np.int16).reshape(2, 3)))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        header = header_of(cell(bytes(damaged)))
    except NpyError:
        return
    assert header.size + header.payload == len(damaged)
    assert header.dtype.kind != "O"
