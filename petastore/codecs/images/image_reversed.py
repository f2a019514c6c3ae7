"""ReversedImageCodec: images whose files hold blue, green, red, as early releases of Petastorm wrote them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.codecs.images.image import CompressedImageCodec, ImageFormat
from petastore.codecs.images.image_faces import ImageFaces
from petastore.codecs.images.image_hint import WHOLE, ImageDecode
from petastore.errors import EncodeError
from petastore.schema.codec import JsonValue
from petastore.schema.field import UnischemaField

__all__ = ["ReversedImageCodec"]


@dataclasses.dataclass(frozen=True, slots=True)
class ReversedImageCodec(ImageFaces):
    """`CompressedImageCodec`, but the files hold the channels in reverse; values are red, green and blue.

    Schemas that Petastorm 0.2.1 to 0.2.3 pickled become this. Choose `CompressedImageCodec` for new datasets: other
    programs show these files in wrong colours. Thread-safe; gray images are the same in both.

    Args:
        image_codec: As of `CompressedImageCodec`.
        quality: As of `CompressedImageCodec`.

    Raises:
        SchemaError: Another format, or a quality out of range.

    Example:
        >>> field = UnischemaField("face", "uint8", (1, 1, 3), ReversedImageCodec("png"))
        >>> cell = field.codec.encode(field, np.array([[[255, 128, 0]]], "uint8"))
        >>> field.codec.decode(field, cell).tolist(), CompressedImageCodec("png").decode(field, cell).tolist()
        ([[[255, 128, 0]]], [[[0, 128, 255]]])
    """

    image_codec: ImageFormat = "png"
    """`"png"` or `"jpeg"`."""

    quality: int = 80
    """Quality of JPEG, 1 to 100."""

    codec_id: ClassVar[str] = "reversed_image"

    def __post_init__(self) -> None:
        plain = self._plain
        object.__setattr__(self, "image_codec", plain.image_codec)
        object.__setattr__(self, "quality", plain.quality)

    @property
    def _plain(self) -> CompressedImageCodec:
        return CompressedImageCodec(self.image_codec, self.quality)

    def config(self) -> Mapping[str, JsonValue]:
        """`{"image_codec": "png", "quality": 80}`."""
        return self._plain.config()

    def check_field(self, field: UnischemaField) -> None:
        """As `CompressedImageCodec.check_field`.

        Raises:
            SchemaError: Another dtype or shape.
        """
        self._plain.check_field(field)

    def encode(self, field: UnischemaField, value: Any) -> bytes:
        """One image to the bytes of a file, channels reversed.

        Raises:
            EncodeError: As `CompressedImageCodec.encode`; or a file was given, whose channels are not reversed.
        """
        from petastore.codecs.images.image_given import image_file

        if image_file(value, field) is not None:
            raise EncodeError("image files are stored by CompressedImageCodec alone; give an array", column=field.name)
        return self._plain.encode(field, _reversed(value))

    def encode_arrow(self, values: pa.Array, field: UnischemaField) -> pa.Array | None:
        """None for pixels.

        Raises:
            EncodeError: The column holds files, whose channels are not reversed.
        """
        from petastore.codecs.images.image_given import image_cells

        if image_cells(values, field) is not None:
            raise EncodeError("image files are stored by CompressedImageCodec alone; give arrays", column=field.name)
        return None

    def decode(self, field: UnischemaField, cell: Any) -> Any:
        """The bytes of a file to an image that owns its memory.

        Raises:
            DecodeError: As `CompressedImageCodec.decode`.
        """
        image = self._plain.decode(field, cell)
        _reverse(image)
        return image

    def decode_bytes(self, cells: Sequence[NDArray[np.uint8]], field: UnischemaField, out: NDArray[Any]) -> None:
        """The bytes of files into `out`, as `decode_column`.

        Raises:
            DecodeError: As `decode`, with `row` set.
        """
        self._plain.decode_bytes(cells, field, out)
        for image in out:
            _reverse(image)

    def _reading(self, field: UnischemaField) -> tuple[UnischemaField, ImageDecode]:
        return field, WHOLE


def _reversed(value: Any) -> Any:
    """The image with its channels in reverse, C-contiguous; anything else as it is."""
    is_color = type(value) is np.ndarray and value.ndim == 3
    return np.ascontiguousarray(value[..., ::-1]) if is_color else value


def _reverse(image: Any) -> None:
    """Reverse the channels of an image in place: a copy would take its memory twice."""
    if type(image) is np.ndarray and image.ndim == 3:
        first = image[..., 0].copy()
        image[..., 0] = image[..., 2]
        image[..., 2] = first
