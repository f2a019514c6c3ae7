"""Values to write: tensors and images, all different. Imports only packages that Petastorm's environment has."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

__all__ = ["FIELDS", "JPEG_QUALITY", "Kind", "encoded_picture", "picture_row", "raw_data", "tensor_row", "tensors"]

Kind: TypeAlias = Literal["tensor", "image"]

FIELDS: dict[Kind, tuple[type, tuple[int, ...]]] = {
    "tensor": (np.float32, (64, 32)),
    "image": (np.uint8, (224, 224, 3)),
}
"""Of each kind the dtype and the shape of its field: a tensor has 8 KiB."""

JPEG_QUALITY = 90

_POOL = 64
_BITS = 16
_ROWS_OF_RAW_ROW_GROUPS: dict[Kind, int] = {"tensor": 2048, "image": 112}
"""16 MiB: Spark's gigabyte of memory holds some."""


@functools.lru_cache(1)
def _tensor_pool() -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).random((_POOL, *FIELDS["tensor"][1]), dtype=np.float32)


@functools.lru_cache(1)
def _picture_pool() -> np.ndarray[Any, Any]:
    """Smooth, with some noise, as photographs are."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (_POOL, 8, 8, 3)).repeat(28, 1).repeat(28, 2).astype(np.int16)
    return np.clip(coarse + rng.integers(-8, 9, (_POOL, *FIELDS["image"][1])), 0, 255).astype(np.uint8)


def tensors(numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The tensors of some rows, no two alike: what repeats, Parquet's dictionaries would store once."""
    found: np.ndarray[Any, Any] = _tensor_pool()[numbers % _POOL]
    found[:, 0, 0] = numbers
    return found


def tensor_row(number: int) -> dict[str, Any]:
    """A row of a tensor."""
    tensor = _tensor_pool()[number % _POOL].copy()
    tensor[0, 0] = number
    return {"id": number, "tensor": tensor}


def picture_row(number: int) -> dict[str, Any]:
    """A row of a picture; its number is in its first pixels, one bit in each."""
    image = _picture_pool()[number % _POOL].copy()
    image[0, :_BITS] = (number >> np.arange(_BITS) & 1)[:, None] * 255
    return {"id": number, "image": image}


def encoded_picture(number: int) -> bytes:
    """A picture as OpenCV encodes it, which the codec uses, too."""
    import cv2

    bgr = cv2.cvtColor(picture_row(number)["image"], cv2.COLOR_RGB2BGR)
    is_encoded, cell = cv2.imencode(".jpeg", bgr, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
    assert is_encoded
    return bytes(cell)


def raw_data(folder: Path, kind: Kind, rows: int) -> None:
    """The same rows as bytes, as encoded cells and, of tensors, as arrays: each in two files of plain Parquet."""
    makers: dict[str, Callable[[int], Any]] = {
        "bytes": lambda number: _row(kind, number)[kind].tobytes(),
        "cells": (lambda number: _npy(tensor_row(number)["tensor"])) if kind == "tensor" else encoded_picture,
    }
    if kind == "tensor":
        makers["arrays"] = lambda number: tensor_row(number)["tensor"].reshape(-1)
    for stored, make in makers.items():
        for half in range(2):
            _write(folder / kind / stored, kind, range(half * rows // 2, (half + 1) * rows // 2), half, make)


def _row(kind: Kind, number: int) -> dict[str, Any]:
    return tensor_row(number) if kind == "tensor" else picture_row(number)


def _write(folder: Path, kind: Kind, numbers: range, part: int, make: Callable[[int], Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    values = pa.list_(pa.float32()) if folder.name == "arrays" else pa.binary()
    schema = pa.schema([("id", pa.int64()), (kind, values)])
    step = _ROWS_OF_RAW_ROW_GROUPS[kind]
    with pq.ParquetWriter(folder / f"part-{part}.parquet", schema) as writer:
        for start in range(0, len(numbers), step):
            some = numbers[start : start + step]
            writer.write_table(pa.table([list(some), [make(number) for number in some]], schema))


def _npy(value: np.ndarray[Any, Any]) -> bytes:
    stored = io.BytesIO()
    np.save(stored, value)
    return stored.getvalue()
