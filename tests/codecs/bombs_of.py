"""Hypothesis strategies of decompression bombs: cells with huge values in each size field of a format."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from petastore import UnischemaField
from tests import bombs

__all__ = ["archives", "arrays", "jpegs", "pngs", "vectors"]

SIZES = [0, 1, 3, 1000, 2**16, 2**20, 5 * 2**20, 2**31, 2**40]


@st.composite
def _headers(draw: st.DrawFn, field: UnischemaField) -> bytes:
    """Draw `.npy` headers with the dtype of a field, mostly with its dimensions."""
    kind = np.dtype("U3") if field.numpy_dtype is np.str_ else np.dtype(field.numpy_dtype)
    lengths = [st.sampled_from(SIZES if size is None else [size, *SIZES]) for size in field.shape]
    shape = draw(st.tuples(*lengths) | st.tuples(st.sampled_from(SIZES), st.sampled_from(SIZES)))
    return bombs.npy_header(draw(st.sampled_from([kind.str, "|S99999", "|V1"])), shape)


@st.composite
def arrays(draw: st.DrawFn, field: UnischemaField) -> bytes:
    """Draw `.npy` cells whose headers declare arbitrary shapes."""
    return draw(_headers(field)) + bytes(draw(st.sampled_from([0, 1, 1000, 2**20])))


@st.composite
def archives(draw: st.DrawFn, field: UnischemaField) -> bytes:
    """Draw `.npz` archives of zeros whose declared size is right, too small or too large, with any `.npy` header."""
    size = draw(st.sampled_from([0, 8, 1000, 2**20, 40 * 2**20]))
    says = draw(st.none() | st.sampled_from([0, 100, 2**20, 45 * 2**20, 2**31, 2**32 - 2]))
    kind = np.dtype("U3") if field.numpy_dtype is np.str_ else np.dtype(field.numpy_dtype)
    declared = tuple(length or 3 for length in field.shape[1:])
    rows = size // (kind.itemsize * max(math.prod(declared), 1))
    honest = bombs.npy_header(kind.str, (rows, *declared) if field.shape else ())
    return bombs.npz(size, header=draw(st.just(honest) | _headers(field)), says=says)


@st.composite
def pngs(draw: st.DrawFn, field: UnischemaField) -> bytes:
    """Draw PNGs of any size and kind, some with a compressed text bomb, animation frames, or a wrong chunk length."""
    height, width = draw(st.sampled_from([(8, 8), (1, 2**20), (2**20, 1), (3000, 3000), (20_000, 20_000)]))
    whole = height * width <= 10**7
    cell = bombs.png(
        height if whole else 8,
        width if whole else 8,
        depth=draw(st.sampled_from([1, 8]) if field.dtype.itemsize == 1 else st.just(16)),
        colors=draw(st.sampled_from([0, 2, 3])),
        interlaced=draw(st.booleans()),
        extra=draw(st.sampled_from([b"", *_extras(height, width)])),
    )
    cell = cell if whole else cell[:16] + bombs.png_size(height, width) + cell[24:]
    lengthened = draw(st.none() | st.sampled_from([b"IDAT", b"IEND", b"zTXt"]))
    longer = draw(st.sampled_from([1, 5 * 2**20, 2**31 - 1, 2**32 - 1]))
    return cell if lengthened is None else bombs.png_with_length(cell, lengthened, longer)


def _extras(height: int, width: int) -> list[bytes]:
    text, profile = (bombs.png_chunk(kind, b"a\0\0" + bombs.zlib_zeros(60 * 2**20)) for kind in (b"zTXt", b"iCCP"))
    return [text, profile, bombs.png_film(height, width)]


def jpegs(field: UnischemaField) -> st.SearchStrategy[bytes]:
    """Draw JPEGs of several sizes, with one or several scans."""
    sizes = st.sampled_from([(8, 8), (16, 24), (8, 60_000), (3000, 3000), (65_500, 4), (2000, 65_500)])
    scans = st.sampled_from(["one", "each", "progressive"])
    return st.builds(lambda size, of: bombs.jpeg(*size, scans=of), sizes, scans)


def vectors(field: UnischemaField) -> st.SearchStrategy[Any]:
    """Draw vector cells that declare any number of elements."""
    size = st.sampled_from([-1, 0, 1, 2**20, 5 * 2**20, 2**27, 2**31 - 1])
    lists = st.sampled_from([[], [0], [2**20]])
    return st.builds(
        lambda kind, size, indices: {"type": kind, "size": size, "indices": indices, "values": [1.0] * len(indices)},
        st.sampled_from([0, 1, 2]), size, lists,
    )  # fmt: skip
