"""What a digit is, and where digits lie."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from petastore import Unischema, UnischemaField
from petastore.codecs import CompressedImageCodec, ScalarCodec

__all__ = ["LEVELS", "DigitSchema", "dataset_url"]

LEVELS = 16
"""The darkest pixel; 0 is white."""

DigitSchema = Unischema(
    "DigitSchema",
    [
        UnischemaField("id", np.int32, (), ScalarCodec("int")),
        UnischemaField("image", np.uint8, (8, 8), CompressedImageCodec("png")),
        UnischemaField("label", np.int64, (), ScalarCodec("long")),
    ],
)


def dataset_url(directory: Path, split: str) -> str:
    """The URL of the dataset of one split, `"train"` or `"test"`."""
    return f"{directory.resolve().as_uri()}/split={split}"
