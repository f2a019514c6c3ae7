"""A field of images as it is read through a hint: another shape, and a codec that gives it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, ClassVar

from petastore.codecs.images.image import CompressedImageCodec
from petastore.codecs.images.image_faces import ImageFaces
from petastore.codecs.images.image_hint import ImageDecode
from petastore.errors import InvalidArgumentError, SchemaError
from petastore.schema.codec import JsonValue
from petastore.schema.field import UnischemaField

__all__ = ["HintedImageCodec", "hinted_field"]


def hinted_field(field: UnischemaField, hint: ImageDecode) -> UnischemaField:
    """The field as it comes out when its images are decoded so.

    Args:
        field: As it is stored; or as another hint left it, which is forgotten.
        hint: What is wanted.

    Raises:
        InvalidArgumentError: The field holds no images, or none that reach as far as the region.

    Example:
        >>> photo = UnischemaField("photo", "uint8", (None, None, 3), CompressedImageCodec("jpeg"))
        >>> hinted_field(photo, ImageDecode(size=(128, 128))).shape
        (128, 128, 3)
    """
    if not isinstance(hint, ImageDecode):
        raise InvalidArgumentError(
            f"decode= has {hint!r} for {field.name!r}; give petastore.codecs.ImageDecode(size=…)"
        )
    stored = field.codec.stored if isinstance(field.codec, HintedImageCodec) else field
    if not isinstance(stored.codec, CompressedImageCodec):
        raise InvalidArgumentError(
            f"decode= has a hint for {field.name!r}, which is no field of images: its codec is {stored.codec!r}, and "
            "hints are for CompressedImageCodec"
        )
    try:
        shape = hint.shape_of(stored.shape)
    except InvalidArgumentError as problem:
        raise InvalidArgumentError(f"decode= of {field.name!r}: {problem}") from None
    return dataclasses.replace(stored, shape=shape, codec=HintedImageCodec(stored, hint))


@dataclasses.dataclass(frozen=True, slots=True)
class HintedImageCodec(ImageFaces):
    """The codec of a field of images that is read through a hint.

    It writes what `CompressedImageCodec` writes, and schema documents name that one: whoever writes a dataset with the
    schema of such a reader gets images of the new size, to be read without any hint. Thread-safe; decoding lets go of
    the GIL.

    Example:
        >>> import numpy as np
        >>> photo = UnischemaField("photo", "uint8", (4, 6, 3), CompressedImageCodec("png"))
        >>> cell = photo.codec.encode(photo, np.full((4, 6, 3), (255, 128, 0), "uint8"))
        >>> gray = hinted_field(photo, ImageDecode(region=(0, 0, 2, 3), gray=True))
        >>> gray.codec.decode(gray, cell).tolist()
        [[151, 151, 151], [151, 151, 151]]
    """

    stored: UnischemaField
    """The field as it is stored, with its `CompressedImageCodec`."""

    hint: ImageDecode
    """What is wanted of it."""

    codec_id: ClassVar[str] = CompressedImageCodec.codec_id

    @property
    def _writing(self) -> CompressedImageCodec:
        codec = self.stored.codec
        assert isinstance(codec, CompressedImageCodec)  # noqa: S101 - `hinted_field` has seen to it
        return codec

    def config(self) -> Mapping[str, JsonValue]:
        """That of the codec that wrote the images."""
        return self._writing.config()

    def check_field(self, field: UnischemaField) -> None:
        """The dtype and shape that come out, and no other.

        Raises:
            SchemaError: Another dtype or shape.
        """
        shape = self.hint.shape_of(self.stored.shape)
        if field.shape != shape or field.dtype_name != self.stored.dtype_name:
            raise SchemaError(
                f"field {field.name!r}: images that are read by {self.hint!r} are {self.stored.dtype_name} of shape "
                f"{shape}, but the field declares {field.dtype_name} of shape {field.shape}"
            )

    def encode(self, field: UnischemaField, value: Any) -> bytes:
        """One image, of the shape that comes out, to the bytes of a file.

        Raises:
            EncodeError: As `CompressedImageCodec.encode`.
        """
        return self._writing.encode(field, value)

    def _reading(self, field: UnischemaField) -> tuple[UnischemaField, ImageDecode]:  # noqa: ARG002 - as it was bound
        return (_as_rgb(self.stored) if self.hint.mode == "rgb" else self.stored), self.hint


@functools.lru_cache(maxsize=256)
def _as_rgb(stored: UnischemaField) -> UnischemaField:
    """The field as one of three channels, which files of every kind are read as."""
    return dataclasses.replace(stored, shape=(*stored.shape[:2], 3))
