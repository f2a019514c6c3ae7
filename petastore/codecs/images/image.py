"""CompressedImageCodec: an image as the bytes of a PNG or JPEG file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from petastore.codecs.declared import array_to_write
from petastore.codecs.images.image_faces import ImageFaces
from petastore.codecs.images.image_files import ImageError, image_bytes, image_header
from petastore.codecs.images.image_hint import WHOLE, ImageDecode
from petastore.errors import EncodeError, SchemaError
from petastore.schema.codec import JsonValue
from petastore.schema.field import UnischemaField

__all__ = ["CompressedImageCodec", "ImageFormat", "image_field"]

ImageFormat: TypeAlias = Literal["png", ".png", "jpeg", "jpg", ".jpeg", ".jpg"]
"""What an image is stored as, in a word; capitals are understood, too."""

_FORMATS = {word: "png" if "png" in word else "jpeg" for word in get_args(ImageFormat)}


@dataclasses.dataclass(frozen=True, slots=True)
class CompressedImageCodec(ImageFaces):
    """An image of shape (height, width) or (height, width, 3) as a PNG or JPEG file.

    Thread-safe; encoding and decoding let go of the GIL. Three channels are red, green and blue, in the value and in
    the file, so any program shows the true colours. Values are arrays, or the bytes of PNG and JPEG files, which are
    stored as they are; gray and CMYK files are RGB where three channels are declared. PNG keeps every pixel, of `uint8`
    and `uint16`; JPEG is lossy, `uint8` alone. Needs `pip install 'petastore[image]'`.

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

    def encode(self, field: UnischemaField, value: Any) -> bytes:
        """One image to the bytes of a file.

        Args:
            field: What was declared.
            value: An array; or the bytes of a PNG or JPEG file, or a dict with them as `bytes`, or with the `path` of a
                local file, as Hugging Face has images. Files are checked by their headers and stored unchanged.

        Raises:
            EncodeError: Another dtype or shape than declared, one or four channels as a third dimension, no pixel.
            MissingExtraError: No image library is installed.
        """
        from petastore.codecs.images.image_given import check_file, image_file  # with what only writers need

        file = image_file(value, field)
        if file is not None:
            check_file(np.frombuffer(file, np.uint8), field)
            return file
        image = _image_to_write(field, value)
        try:
            return image_bytes(image, self.image_codec, self.quality)
        except ImageError as problem:
            raise EncodeError(
                f"the image cannot be written as {self.image_codec}: {problem}", column=field.name
            ) from None

    def _reading(self, field: UnischemaField) -> tuple[UnischemaField, ImageDecode]:
        return field, WHOLE


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


def image_field(name: str, values: Any) -> UnischemaField | None:
    """The field of images that a column of structs of `bytes` and `path` holds; None where it holds other files.

    Args:
        name: Of the column.
        values: Some of its values, as dicts, none of them missing.

    Example:
        >>> image_field("sound", [{"bytes": b"RIFF", "path": "a.wav"}]) is None
        True
    """
    from petastore.codecs.images.image_given import image_file

    unknown = UnischemaField(name, object)
    try:
        files = [image_file(value, unknown) for value in values]
    except EncodeError:
        return None
    headers = [image_header(np.frombuffer(file or b"", np.uint8)) for file in files]
    known = [header for header in headers if header is not None]
    if not known or len(known) < len(headers):
        return None
    colors: tuple[int, ...] = (3,) if any(len(header.shape) == 3 for header in known) else ()
    codec = CompressedImageCodec("png" if known[0].format == "png" else "jpeg")
    return UnischemaField(name, known[0].dtype, (None, None, *colors), codec)
