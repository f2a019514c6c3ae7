"""Images of a dataset: shown on a terminal with half-block characters, or saved as PNG files in a directory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.color import Color
from rich.style import Style
from rich.text import Text

from petastore.cli.terminal import counted
from petastore.decoding.display import holds_images, pixels_of, png_bytes, shrunk
from petastore.errors import InvalidArgumentError
from petastore.schema.field import UnischemaField

__all__ = ["SavedImages", "thumbnail"]


_UPPER_HALF = "▀"


def thumbnail(pixels: NDArray[Any], side: int) -> Text:
    """Return an image as half-block characters: each shows two pixels, one above the other.

    Larger images are reduced; a pixel is the mean of the pixels that it covers. Images of 16 bits are stretched, so
    that their brightest pixel is white. Transparent images are shown on black.

    Args:
        pixels: Pixels, from `pixels_of`.
        side: Maximum height and width in pixels.

    Example:
        >>> print(thumbnail(np.zeros((4, 3), "uint8"), 32))
        ▀▀▀
        ▀▀▀
    """
    colors = _colors(shrunk(pixels, side), brightest=255 if pixels.dtype == np.uint8 else max(int(pixels.max()), 1))
    lines = []
    for top in range(0, len(colors), 2):
        line = Text()
        below = colors[top + 1] if top + 1 < len(colors) else [None] * len(colors[top])
        for upper, lower in zip(colors[top], below, strict=True):
            line.append(_UPPER_HALF, Style(color=upper, bgcolor=lower))
        lines.append(line)
    return Text("\n").join(lines)


def _colors(pixels: NDArray[np.float64], *, brightest: int) -> list[list[Color]]:
    """Return the color of each pixel."""
    scaled = pixels * (255 / brightest)
    if scaled.ndim == 2:
        scaled = np.repeat(scaled[:, :, None], 3, axis=2)
    elif scaled.shape[2] == 4:
        scaled = scaled[:, :, :3] * scaled[:, :, 3:] / 255
    levels = np.rint(scaled).astype(np.uint8).tolist()
    return [[Color.from_rgb(*rgb) for rgb in line] for line in levels]


class SavedImages:
    """Images of rows as PNG files in a folder, named by the number of the row and by the column.

    Args:
        folder: Folder, which is created if missing; files with the same names are replaced.
        fields: Fields of a row.
        rows: Expected number of rows, so that all names have the same number of digits.
    """

    def __init__(self, folder: Path, fields: Sequence[UnischemaField], rows: int) -> None:
        self.folder = folder
        """Folder of the files."""
        self.files: dict[tuple[int, str], Path] = {}
        """Files that were written: dict from (row number, column name) to path."""
        self._columns = [field.name for field in fields if holds_images(field)]
        self._digits = len(str(rows - 1))

    def saving(self, rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield each row, after its images are written.

        Raises:
            InvalidArgumentError: The images cannot be written to the directory.
        """
        for number, row in enumerate(rows):
            for name in self._columns:
                self._save(number, name, row[name])
            yield row

    def _save(self, number: int, name: str, value: Any) -> None:
        pixels = pixels_of(value) if isinstance(value, np.ndarray) else None
        if pixels is None:
            return
        path = self.folder / f"{number:0{self._digits}}-{_in_a_path(name)}.png"
        content = png_bytes(pixels)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        except OSError as problem:
            raise InvalidArgumentError(
                f"--save-images must be a writable directory, got {self.folder}: {path.name} cannot be written: "
                f"{problem}"
            ) from None
        self.files[number, name] = path

    @property
    def in_words(self) -> str:
        """Return the number of saved images and their directory as text."""
        if not self._columns:
            return "no image columns, so no images were saved"
        return f"{counted(len(self.files), 'image')} saved in {self.folder}"


def _in_a_path(name: str) -> str:
    """Return a value as a unique part of a file name: characters with a meaning in paths become %XX.

    Example:
        >>> _in_a_path("left eye"), _in_a_path("../x")
        ('left eye', '%2E%2E%2Fx')
    """
    return "".join(
        character
        if character.isalnum() or character in "-_ "
        else "".join(f"%{byte:02X}" for byte in _bytes(character))
        for character in name
    )


def _bytes(character: str) -> bytes:
    return character.encode("utf-8", "surrogatepass")
