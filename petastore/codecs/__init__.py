"""Codecs: convert arrays, images and scalars to cells of a Parquet column and back.

| codec | values | stored cell |
|---|---|---|
| none (`PlainCodec`) | scalars, lists | the matching Parquet type |
| `ScalarCodec(spark_type)` | scalars | the given Spark type |
| `NdarrayCodec()` | arrays | `.npy` bytes |
| `CompressedNdarrayCodec()` | arrays | `.npz` bytes (deflate) |
| `CompressedImageCodec("png" or "jpeg", quality)` | images, (H, W) or (H, W, 3) RGB | PNG or JPEG bytes |
| `ArrowCodec(arrow_type)` | dicts, maps, nested lists | the given Arrow type |
| `VectorCodec()` | Spark ML vectors, as arrays (n,) | the struct that Spark writes |

`ImageDecode` crops and resizes images while decoding.

All codecs implement `petastore.schema.field.Codec`; `register` adds your own. Codecs written for Petastorm, which
encode one cell at a time, derive from `DataframeColumnCodec`.
"""

from typing import TYPE_CHECKING

from petastore.codecs.arrays.compressed import CompressedNdarrayCodec
from petastore.codecs.arrays.ndarray import NdarrayCodec
from petastore.codecs.by_cell import DataframeColumnCodec
from petastore.codecs.images.image import CompressedImageCodec
from petastore.codecs.images.image_decode import ImageDecode
from petastore.codecs.plain import PlainCodec
from petastore.codecs.registry import register
from petastore.codecs.scalar import ScalarCodec
from petastore.codecs.vector import VectorCodec
from petastore.lazy import late_names

if TYPE_CHECKING:
    from petastore.codecs.arrow_cells import ArrowCodec

__all__ = [
    "ArrowCodec",
    "CompressedImageCodec",
    "CompressedNdarrayCodec",
    "DataframeColumnCodec",
    "ImageDecode",
    "NdarrayCodec",
    "PlainCodec",
    "ScalarCodec",
    "VectorCodec",
    "register",
]

__getattr__ = late_names(__name__, {"ArrowCodec": "petastore.codecs.arrow_cells"})
