"""How values are stored: one value ⇄ one stored cell, and whole columns at once.

| codec | stores | cell |
|---|---|---|
| none (`PlainCodec`) | scalars, lists | the Parquet type of the same meaning |
| `ScalarCodec(spark_type)` | a scalar | the Spark type that was chosen |
| `NdarrayCodec()` | an array | `.npy` bytes |
| `CompressedNdarrayCodec()` | an array | `.npz` bytes (deflate) |
| `CompressedImageCodec("png" or "jpeg", quality)` | an image, (H, W) or (H, W, 3) RGB | the image file |
| `ArrowCodec(arrow_type)` | dicts, maps, lists with missing values | the Arrow type |
| `VectorCodec()` | a vector of Spark ML, as an array (n,) | the struct of Spark's own files |

`ImageDecode` says which part of images is wanted when they are read, and at what size.

`petastore.schema.codec.Codec` is the promise that all of them keep; `register` makes one of your own known.
`DataframeColumnCodec` makes one of what a single cell is, as Petastorm's users write them.
"""

from typing import TYPE_CHECKING

from petastore.codecs.arrays.compressed import CompressedNdarrayCodec
from petastore.codecs.arrays.ndarray import NdarrayCodec
from petastore.codecs.by_cell import DataframeColumnCodec
from petastore.codecs.images.image import CompressedImageCodec
from petastore.codecs.images.image_hint import ImageDecode
from petastore.codecs.plain import PlainCodec
from petastore.codecs.registry import register
from petastore.codecs.scalar import ScalarCodec
from petastore.codecs.vector import VectorCodec
from petastore.late_names import late_names

if TYPE_CHECKING:
    from petastore.codecs.arrow_codec import ArrowCodec

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

__getattr__ = late_names(__name__, {"ArrowCodec": "petastore.codecs.arrow_codec"})
