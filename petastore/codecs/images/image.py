"""CompressedImageCodec: an image, stored as the bytes of a PNG or JPEG file.

The module also infers fields from image files.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow import compute as pc
from petastore.codecs.arrow.arrow_views import byte_cells, bytes_of_cell
from petastore.codecs.arrow.numpy_to_arrow import encode_each
from petastore.codecs.declared import array_to_write
from petastore.codecs.images.image_decode import WHOLE, ImageDecode, part_bytes, read_image, read_images
from petastore.codecs.images.image_header import (
    ImageError,
    checked_header,
    decoded_sizes,
    image_bytes,
    is_image_file,
    read_header,
)
from petastore.errors import DecodeError, EncodeError, InvalidArgumentError, SchemaError
from petastore.schema.arrow import is_bytes
from petastore.schema.field import JsonValue, UnischemaField

__all__ = [
    "CompressedImageCodec",
    "HintedImageCodec",
    "ReversedImageCodec",
    "check_file",
    "hinted_field",
    "image_cells",
    "image_field",
    "image_file",
    "is_image_struct",
]


ImageFormat: TypeAlias = Literal["png", ".png", "jpeg", "jpg", ".jpeg", ".jpg"]
"""Image formats; upper case is accepted, too."""

_FORMATS = {word: "png" if "png" in word else "jpeg" for word in get_args(ImageFormat)}


@dataclasses.dataclass(frozen=True, slots=True)
class CompressedImageCodec:
    """A codec for images, stored as PNG or JPEG files.

    Images have the shape (height, width) or (height, width, 3). Thread-safe; encoding and decoding release the GIL.
    Three channels are RGB, in arrays and in files. Values are arrays, or the bytes of PNG and JPEG files, which are
    stored unchanged; gray and CMYK files are read as RGB if the field declares three channels. PNG is lossless, for
    `uint8` and `uint16`; JPEG is lossy, for `uint8` only. Needs `pip install 'petastore[image]'`.

    Args:
        image_codec: `"png"`, or `"jpeg"` (also `"jpg"`).
        quality: JPEG quality, 1 to 100; ignored for PNG.

    Raises:
        SchemaError: The format is not PNG or JPEG, or `quality` is out of range.

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
    """JPEG quality, 1 to 100."""

    codec_id: ClassVar[str] = "compressed_image"

    _is_reversed: ClassVar[bool] = False
    """Whether the files store the channels in the order blue, green, red."""

    def __post_init__(self) -> None:
        name = self.image_codec.lower() if isinstance(self.image_codec, str) else self.image_codec
        if not isinstance(name, str) or name not in _FORMATS:
            raise SchemaError(f"image_codec must be 'png' or 'jpeg', got {self.image_codec!r}")
        quality = self.quality
        if isinstance(quality, bool) or not isinstance(quality, (int, np.integer)) or not 1 <= quality <= 100:
            raise SchemaError(f"quality must be an int from 1 to 100, got {quality!r}")
        object.__setattr__(self, "image_codec", _FORMATS[name])
        object.__setattr__(self, "quality", int(quality))

    def config(self) -> Mapping[str, JsonValue]:
        """Return format and quality, such as `{"image_codec": "png", "quality": 80}`."""
        return {"image_codec": self.image_codec, "quality": self.quality}

    def check_field(self, field: UnischemaField) -> None:
        """Check the dtype and shape of the field.

        The dtype must be `uint8`, or also `uint16` for PNG. The shape must be (height, width) or (height, width, 3).

        Raises:
            SchemaError: The field has another dtype or shape.
        """
        dtypes = ("uint8", "uint16") if self.image_codec == "png" else ("uint8",)
        if field.dtype_name not in dtypes:
            raise SchemaError(
                f"field {field.name!r}: an image in {self.image_codec} must be {' or '.join(dtypes)}, got "
                f"{field.dtype_name}"
            )
        gray, color = len(field.shape) == 2, len(field.shape) == 3 and field.shape[-1] in (3, None)
        if not (gray or color) or 0 in field.shape:
            raise SchemaError(
                f"field {field.name!r}: an image must have shape (height, width) or (height, width, 3), got "
                f"{field.shape}"
            )

    def encode(self, field: UnischemaField, value: Any) -> bytes:
        """Encode one image to the bytes of a file.

        Args:
            field: The field of the column.
            value: An array; the bytes of a PNG or JPEG file; or a dict with `bytes` or a local `path`, as in Hugging
                Face datasets. Files are checked by their headers and stored unchanged.

        Raises:
            EncodeError: The dtype or shape differs from the field, the image has one or four channels in a third
                dimension, or it has no pixels.
            MissingExtraError: No image library is installed.
        """
        file = image_file(value, field)
        if file is not None:
            self._check_takes_files(field)
            check_file(np.frombuffer(file, np.uint8), field)
            return file
        image = _image_to_write(field, value)
        if self._is_reversed and image.ndim == 3:
            image = image[..., ::-1]
        try:
            return image_bytes(image, self.image_codec, self.quality)
        except ImageError as problem:
            raise EncodeError(
                f"the image cannot be written as {self.image_codec}: {problem}", column=field.name
            ) from None

    def storage_type(self, field: UnischemaField) -> pa.DataType:  # noqa: ARG002 - bytes for every field
        """Return the Arrow type `binary`."""
        return pa.binary()

    def encode_column(self, values: Sequence[Any] | NDArray[Any], field: UnischemaField) -> pa.Array:
        """Encode many images to a binary column.

        Args:
            values: An array `(rows, height, width[, 3])`, or a sequence of images or image files; None becomes null.
            field: The field of the column.

        Raises:
            EncodeError: As `encode`, with `row` set.
            MissingExtraError: No image library is installed.
        """
        return encode_each(values, self.encode, pa.binary(), field)

    def encode_arrow(self, values: pa.Array, field: UnischemaField) -> pa.Array | None:
        """Return a column of image files as stored cells, with the files unchanged.

        The column has bytes, or structs of `bytes` and `path`. Return None for other columns.

        Raises:
            EncodeError: A file is not PNG or JPEG, or does not match the field; `row` is set.
        """
        cells = image_cells(values, field)
        if cells is not None:
            self._check_takes_files(field)
        return cells

    def decode(self, field: UnischemaField, cell: Any) -> Any:
        """Decode the bytes of a PNG or JPEG file to a new array.

        Raises:
            DecodeError: The bytes are damaged, the dtype or shape differs from the field, or the image is smaller than
                the region of `ImageDecode`.
            MissingExtraError: No image library is installed.
        """
        try:
            image = read_image(bytes_of_cell(cell, field), *self._decoding(field))
        except ImageError as problem:
            raise DecodeError(
                f"the cell is not an image that fits the field: {problem}. Skip bad rows with on_error='skip'",
                column=field.name,
            ) from None
        self._restore([image])
        return image

    def decode_column(self, cells: pa.Array, field: UnischemaField, out: NDArray[Any]) -> None:
        """Decode a column of images into `out`.

        Images of a fixed shape are decoded directly into their rows of `out`.

        Raises:
            DecodeError: As `decode`, with `row` set.
            MissingExtraError: No image library is installed.
        """
        files = byte_cells(cells, field)
        self.decode_bytes([files[row] for row in range(len(files))], field, out)

    def decode_bytes(self, cells: Sequence[NDArray[np.uint8]], field: UnischemaField, out: NDArray[Any]) -> None:
        """Decode the bytes of image files into `out`, as `decode_column` does.

        Raises:
            DecodeError: As `decode`, with `row` set.
            MissingExtraError: No image library is installed.
        """
        read_images(cells, *self._decoding(field), out)
        self._restore(out)

    def decoded_sizes(self, cells: pa.Array, field: UnischemaField) -> NDArray[np.int64] | None:
        """Return the bytes of memory that decoding each image needs, shape (rows,).

        This is the size of the decoded file, or of the result if that is larger. For a large JPEG with several scans,
        it is at least the size of the coefficients. Return None if all images have a fixed shape, and the decoded files
        are not larger than the results.
        """
        stored, wanted = self._decoding(field)
        whole, part = stored.decoded_bytes, field.decoded_bytes
        if whole is not None and part is not None:
            return None if whole <= part else np.full(len(cells), whole, np.int64)
        return decoded_sizes(byte_cells(cells, field), lambda header: part_bytes(header, stored, wanted))

    def _decoding(self, field: UnischemaField) -> tuple[UnischemaField, ImageDecode]:
        """Return the field that describes the stored files, and the decoding options.

        The field has three channels if files are converted to RGB. Without `decode=`, the options are `WHOLE`.
        """
        return field, WHOLE

    def _check_takes_files(self, field: UnischemaField) -> None:
        if self._is_reversed:
            raise EncodeError(
                f"images must be arrays for the codec {type(self).__name__}, got the bytes of an image file. Give "
                "arrays, or declare CompressedImageCodec",
                column=field.name,
            )

    def _restore(self, images: Any) -> None:
        """Convert decoded images to RGB, in place to save memory.

        For files in reverse channel order (`ReversedImageCodec`), color channels are reversed. Other images are
        unchanged.
        """
        for image in images if self._is_reversed else ():
            if image.ndim == 3:
                first = image[..., 0].copy()
                image[..., 0] = image[..., 2]
                image[..., 2] = first


class ReversedImageCodec(CompressedImageCodec):
    """Codec for image files whose channels are stored in reverse order.

    Decoded values are RGB. Petastorm 0.2.1 to 0.2.3 wrote such files. Use `CompressedImageCodec` for new datasets,
    because other programs show reversed files in wrong colors. This codec encodes arrays, not files. Gray images are
    equal with both codecs.

    Example:
        >>> field = UnischemaField("face", "uint8", (1, 1, 3), ReversedImageCodec("png"))
        >>> cell = field.codec.encode(field, np.array([[[255, 128, 0]]], "uint8"))
        >>> field.codec.decode(field, cell).tolist(), CompressedImageCodec("png").decode(field, cell).tolist()
        ([[[255, 128, 0]]], [[[0, 128, 255]]])
    """

    __slots__ = ()

    codec_id: ClassVar[str] = "reversed_image"

    _is_reversed: ClassVar[bool] = True


def _image_to_write(field: UnischemaField, value: Any) -> NDArray[Any]:
    image = array_to_write(field, value)
    if image.ndim == 3 and image.shape[2] != 3:
        advice = "Drop the alpha channel" if image.shape[2] == 4 else "Give gray images the shape (height, width)"
        raise EncodeError(
            f"an image must have shape (height, width) or (height, width, 3), got {image.shape}. {advice}",
            column=field.name,
        )
    if 0 in image.shape:
        raise EncodeError(f"an image must have pixels, got shape {image.shape}", column=field.name)
    return image


def hinted_field(field: UnischemaField, hint: ImageDecode) -> UnischemaField:
    """Return the field with the shape of its images after `ImageDecode`.

    Args:
        field: Stored field, or the result of an earlier call, whose hint is replaced.
        hint: Requested `ImageDecode` options.

    Raises:
        InvalidArgumentError: The field does not contain images, or the region is outside its images.

    Example:
        >>> photo = UnischemaField("photo", "uint8", (None, None, 3), CompressedImageCodec("jpeg"))
        >>> hinted_field(photo, ImageDecode(size=(128, 128))).shape
        (128, 128, 3)
    """
    if not isinstance(hint, ImageDecode):
        raise InvalidArgumentError(
            f"decode must have petastore.codecs.ImageDecode(size=…) for {field.name!r}, got {hint!r}"
        )
    stored = field.codec.stored if isinstance(field.codec, HintedImageCodec) else field
    if type(stored.codec) is not CompressedImageCodec:
        raise InvalidArgumentError(
            f"decode must name fields with CompressedImageCodec, got {field.name!r}, whose codec is {stored.codec!r}"
        )
    try:
        shape = hint.shape_of(stored.shape)
    except InvalidArgumentError as problem:
        raise InvalidArgumentError(f"decode= of {field.name!r}: {problem}") from None
    codec = HintedImageCodec(stored.codec.image_codec, stored.codec.quality, stored=stored, hint=hint)
    return dataclasses.replace(stored, shape=shape, codec=codec)


@dataclasses.dataclass(frozen=True, slots=True)
class HintedImageCodec(CompressedImageCodec):
    """Codec of an image field with an `ImageDecode` option.

    It encodes like `CompressedImageCodec` and has the same id in schema documents. If you write a dataset with the
    schema of a reader that has `decode=`, its images have the decoded size, and readers need no `decode=`. Thread-safe;
    decoding releases the GIL.

    Example:
        >>> import numpy as np
        >>> photo = UnischemaField("photo", "uint8", (4, 6, 3), CompressedImageCodec("png"))
        >>> cell = photo.codec.encode(photo, np.full((4, 6, 3), (255, 128, 0), "uint8"))
        >>> gray = hinted_field(photo, ImageDecode(region=(0, 0, 2, 3), mode="gray"))
        >>> gray.codec.decode(gray, cell).tolist()
        [[151, 151, 151], [151, 151, 151]]
    """

    stored: UnischemaField = dataclasses.field(kw_only=True)
    """The field as it is stored, with its `CompressedImageCodec`."""

    hint: ImageDecode = dataclasses.field(kw_only=True)
    """Options with which images are decoded."""

    def check_field(self, field: UnischemaField) -> None:
        """Check that the field has the dtype and shape of the decoded images.

        Raises:
            SchemaError: The field has another dtype or shape.
        """
        shape = self.hint.shape_of(self.stored.shape)
        if field.shape != shape or field.dtype_name != self.stored.dtype_name:
            raise SchemaError(
                f"field {field.name!r} must be {self.stored.dtype_name} of shape {shape}, as {self.hint!r} returns, "
                f"got {field.dtype_name} of shape {field.shape}"
            )

    def _decoding(self, field: UnischemaField) -> tuple[UnischemaField, ImageDecode]:  # noqa: ARG002 - `stored` is used
        return (_as_rgb(self.stored) if self.hint.mode == "rgb" else self.stored), self.hint


@functools.lru_cache(maxsize=256)
def _as_rgb(stored: UnischemaField) -> UnischemaField:
    """Return the field with three channels, so that gray files are converted to RGB."""
    return dataclasses.replace(stored, shape=(*stored.shape[:2], 3))


def image_field(name: str, values: Any) -> UnischemaField | None:
    """Return the image field for a column of structs of `bytes` and `path`.

    Return None if the files are not PNG or JPEG images.

    Args:
        name: Name of the column.
        values: Some values of the column, as dicts, without missing values.

    Example:
        >>> image_field("sound", [{"bytes": b"RIFF", "path": "a.wav"}]) is None
        True
    """
    unknown = UnischemaField(name, object)
    try:
        files = [image_file(value, unknown) for value in values]
        headers = [read_header(np.frombuffer(file or b"", np.uint8)) for file in files]
    except (EncodeError, ImageError):
        return None
    if not headers:
        return None
    colors: tuple[int, ...] = (3,) if any(len(header.shape) == 3 for header in headers) else ()
    codec = CompressedImageCodec("png" if headers[0].format == "png" else "jpeg")
    return UnischemaField(name, headers[0].dtype, (None, None, *colors), codec)


def image_file(value: Any, field: UnischemaField) -> bytes | None:
    """Return the bytes of an image file; None for arrays and other values.

    Args:
        value: Bytes, or a dict with `bytes`, or with the `path` of a local file.
        field: Declared field, for messages.

    Raises:
        EncodeError: A dict has neither bytes nor the path of a file that can be read.
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if not isinstance(value, Mapping):
        return None
    found, path = value.get("bytes"), value.get("path")
    if found is not None:
        return bytes(found)
    try:
        return Path(path or "").read_bytes()
    except OSError as problem:
        raise EncodeError(
            f"an image given as a dict must have bytes, or the path of a local file, got {path!r} ({problem})",
            column=field.name,
        ) from None


def check_file(file: NDArray[np.uint8], field: UnischemaField) -> None:
    """Raise an error if an image file does not fit the field, judged by its header.

    Raises:
        EncodeError: The file is not PNG or JPEG, or not of the declared dtype and shape.
    """
    try:
        checked_header(file, field)
    except ImageError as problem:
        raise EncodeError(f"the file cannot be stored as an image: {problem}", column=field.name) from None


def is_image_struct(stored: pa.DataType) -> bool:
    """Return whether a type is Hugging Face's image type: a struct of bytes and path."""
    return bool(
        pa.types.is_struct(stored)
        and {member.name for member in stored} == {"bytes", "path"}
        and is_bytes(stored.field("bytes").type)
    )


def image_cells(values: pa.Array, field: UnischemaField) -> pa.Array | None:
    """Return the image files in an Arrow column as stored cells.

    Return None if the column has pixels instead of files.

    Args:
        values: Bytes, or structs of `bytes` and `path`, without nulls.
        field: Declared field.

    Raises:
        EncodeError: A file cannot be stored in the field; `row` is set.
    """
    if is_image_struct(values.type):
        files = pc.struct_field(values, "bytes").cast(pa.binary())
        if files.null_count:
            files = pa.array([image_file(value.as_py(), field) for value in values], pa.binary())
    elif is_bytes(values.type):
        files = values.cast(pa.binary())
        cells = byte_cells(files, field)
        pixels = field.decoded_bytes
        if (pixels is not None and (cells.sizes == pixels).all()) or not any(
            is_image_file(cells[row]) for row in range(len(cells))
        ):
            return None
    else:
        return None
    cells = byte_cells(files, field)
    for row in range(len(cells)):
        try:
            check_file(cells[row], field)
        except EncodeError as problem:
            raise problem.at(row=row) from None
    return files
