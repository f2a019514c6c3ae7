"""Decode JPEG cells to tensors for contenders that leave decoding to the user, with the same decoder as petastore."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import simplejpeg
import torch

__all__ = ["decoded", "decoded_batch"]


def decoded(cell: Any) -> torch.Tensor:
    """One picture, (height, width, 3) uint8."""
    return torch.from_numpy(simplejpeg.decode_jpeg(cell, "RGB"))


def decoded_batch(cells: Sequence[Any], shape: tuple[int, ...]) -> torch.Tensor:
    """Pictures of one shape, each decoded into its place."""
    out = np.empty((len(cells), *shape), np.uint8)
    for cell, place in zip(cells, out, strict=True):
        simplejpeg.decode_jpeg(cell, "RGB", buffer=place)
    return torch.from_numpy(out)
