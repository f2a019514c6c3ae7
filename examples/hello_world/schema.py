"""What a row of the hello world dataset is, and where the dataset lies."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from petastore import Unischema, UnischemaField
from petastore.codecs import CompressedImageCodec, NdarrayCodec, ScalarCodec

__all__ = ["DEFAULT_URL", "HelloWorldSchema"]

DEFAULT_URL = (Path(__file__).resolve().parents[2] / ".demo" / "hello_world").as_uri()

HelloWorldSchema = Unischema(
    "HelloWorldSchema",
    [
        UnischemaField("id", np.int32, (), ScalarCodec("int")),
        UnischemaField("image1", np.uint8, (128, 256, 3), CompressedImageCodec("png")),
        UnischemaField("array_4d", np.uint8, (None, 128, 30, None), NdarrayCodec()),
    ],
)
