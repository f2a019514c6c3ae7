"""CompressedImageCodec: an image as the bytes of a PNG or JPEG file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.codecs.arrow.cells import byte_cells, bytes_of_cell
from petastore.codecs.arrow.numpy_to_arrow import cells_array
from petastore.codecs.declared import array_to_write
from petastore.codecs.images.image_files import (
    ImageError,
    decoded_sizes,
    image_bytes,
    pixel_bytes,
    read_image,
    read_images_into,
)
from petastore.errors import DecodeError, EncodeError, SchemaError
from petastore.schema.codec import JsonValue
from petastore.schema.field import UnischemaField

__all__ = ["CompressedImageCodec", "ImageFormat"]

ImageFormat: TypeAlias = Literal["png", ".png", "jpeg", "jpg", ".jpeg", ".jpg"]
"""What an image is stored as, in a word; capitals are understood, too."""

_FORMATS = {word: "png" if "png" in word else "jpeg" for word in get_args(ImageFormat)}


@dataclasses.dataclass(frozen=True, slots=True)
class CompressedImageCodec:
    """An image of shape (height, width) or (height, width, 3) as a PNG or JPEG file.

    Thread-safe; encoding and decoding let go of the GIL. Three channels are red, green and blue, in the value and in
    the file, so any program shows the true colours. PNG keeps every pixel, of `uint8` and `uint16`; JPEG is lossy,
    `uint8` alone. Needs `pip install 'petastore[image]'`.

    Args:
        image_codec: `"png"`, or `"jpeg"` (also `"jpg"`).
        quality: Of JPEG, 1 to 100; has no meaning for PNG.

    Raises:
        SchemaError: Another format, or a quality out of range.

    Example:
        >>> import numpy as np
        >>> field = UnischemaField("face", "uint8", (None, None, 3), CompressedImageCodec("png"))
        >>> cell = field.codec.encode(field, np.full((2, 4, 3), (255, 128, 0), "uint8"))
        >>> cell[1:4]
        b'PNG'
        >>> field.codec.decode(field, cell)[1, 3].tolist()
        [255, 128, 0]
    """

    image_codec: ImageFormat = "png"
    """`"png"` or `"jpeg"`."""

    quality: int = 80
    """Quality of JPEG, 1 to 100."""

    codec_id: ClassVar[str] = "compressed_image"

    def __post_init__(self) -> None:
        name = self.image_codec.lower() if isinstance(self.image_codec, str) else self.image_codec
        if not isinstance(name, str) or name not in _FORMATS:
            raise SchemaError(f"CompressedImageCodec takes the formats 'png' and 'jpeg', not {self.image_codec!r}")
        quality = self.quality
        if isinstance(quality, bool) or not isinstance(quality, (int, np.integer)) or not 1 <= quality <= 100:
            raise SchemaError(f"CompressedImageCodec takes a quality of 1 to 100, not {quality!r}")
        object.__setattr__(self, "image_codec", _FORMATS[name])
        object.__setattr__(self, "quality", int(quality))

    def config(self) -> Mapping[str, JsonValue]:
        """`{"image_codec": "png", "quality": 80}`."""
        return {"image_codec": self.image_codec, "quality": self.quality}

    def check_field(self, field: UnischemaField) -> None:
        """`uint8` (or `uint16` for PNG) of shape (height, width) or (height, width, 3), where sizes may be None.

        Raises:
            SchemaError: Another dtype or shape.
        """
        dtypes = ("uint8", "uint16") if self.image_codec == "png" else ("uint8",)
        if field.dtype_name not in dtypes:
            raise SchemaError(
                f"field {field.name!r}: an image in {self.image_codec} is of {' or '.join(dtypes)}, but the field "
                f"declares {field.dtype_name}"
            )
        gray, color = len(field.shape) == 2, len(field.shape) == 3 and field.shape[-1] in (3, None)
        if not (gray or color) or 0 in field.shape:
            raise SchemaError(
                f"field {field.name!r}: an image has shape (height, width) or (height, width, 3), but the field "
                f"declares {field.shape}"
            )

    def storage_type(self, field: UnischemaField) -> pa.DataType:  # noqa: ARG002 - always bytes
        """Binary."""
        return pa.binary()

    def encode(self, field: UnischemaField, value: Any) -> bytes:
        """One image to the bytes of a file.

        Raises:
            EncodeError: Another dtype or shape than declared, one or four channels as a third dimension, no pixel.
            MissingExtraError: No image library is installed.
        """
        image = _image_to_write(field, value)
        try:
            return image_bytes(image, self.image_codec, self.quality)
        except ImageError as problem:
            raise EncodeError(
                f"the image cannot be written as {self.image_codec}: {problem}", column=field.name
            ) from None

    def decode(self, field: UnischemaField, cell: Any) -> Any:
        """The bytes of a file to an image that owns its memory, whatever format of those that can be read it is.

        Raises:
            DecodeError: The bytes are damaged, or hold another dtype or shape than declared.
            MissingExtraError: No image library is installed.
        """
        try:
            return read_image(bytes_of_cell(cell, field), field)
        except ImageError as problem:
            raise DecodeError(f"the cell is no image as declared: {problem}", column=field.name) from None

    def encode_column(self, values: Sequence[Any] | NDArray[Any], field: UnischemaField) -> pa.Array:
        """Many images to a binary column.

        Args:
            values: An array `(rows, height, width[, 3])`, or a sequence of images; None becomes null.
            field: What was declared.

        Raises:
            EncodeError: As `encode`, with `row` set.
            MissingExtraError: No image library is installed.
        """
        cells: list[bytes | None] = []
        for row, value in enumerate(values):
            try:
                cells.append(None if value is None else self.encode(field, value))
            except EncodeError as problem:
                raise problem.at(row=row) from None
        return cells_array(cells, pa.binary(), field)

    def decode_column(self, cells: pa.Array, field: UnischemaField, out: NDArray[Any]) -> None:
        """A column of images into `out`; pixels of a fixed shape are decoded straight into their place.

        Raises:
            DecodeError: As `decode`, with `row` set.
            MissingExtraError: No image library is installed.
        """
        found = byte_cells(cells, field)
        self.decode_bytes([found[row] for row in range(len(found))], field, out)

    def decode_bytes(self, cells: Sequence[NDArray[np.uint8]], field: UnischemaField, out: NDArray[Any]) -> None:
        """The bytes of files into `out`, as `decode_column`.

        Raises:
            DecodeError: As `decode`, with `row` set.
            MissingExtraError: No image library is installed.
        """
        if field.is_fixed:
            read_images_into(cells, field, out)
            return
        for row, cell in enumerate(cells):
            try:
                out[row] = read_image(cell, field)
            except ImageError as problem:
                raise DecodeError(f"the cell is no image as declared: {problem}", column=field.name, row=row) from None

    def decoded_sizes(self, cells: pa.Array, field: UnischemaField) -> NDArray[np.int64] | None:
        """What the pixels take by the headers of the files, and at least the frequencies of a JPEG of several scans.

        None where the field declares it.
        """
        return (
            None
            if field.is_fixed
            else decoded_sizes(byte_cells(cells, field), lambda header: pixel_bytes(header, field))
        )


def _image_to_write(field: UnischemaField, value: Any) -> NDArray[Any]:
    image = array_to_write(field, value)
    if image.ndim == 3 and image.shape[2] != 3:
        advice = "drop the alpha channel" if image.shape[2] == 4 else "give gray images the shape (height, width)"
        raise EncodeError(
            f"an image of shape {image.shape} came; images have shape (height, width) or (height, width, 3): {advice}",
            column=field.name,
        )
    if 0 in image.shape:
        raise EncodeError(f"an image of shape {image.shape} came, which has no pixel", column=field.name)
    return image
