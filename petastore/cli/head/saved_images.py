"""Images of rows as PNG files in a folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from petastore.cli.head.pictures import holds_images, pixels_of, png
from petastore.cli.render import counted
from petastore.errors import InvalidArgumentError
from petastore.schema.field import UnischemaField

__all__ = ["SavedImages"]


class SavedImages:
    """Images of rows as PNG files in a folder, named by the number of the row and by the column.

    Args:
        folder: Is made where it is not there; files of the same names are replaced.
        fields: What a row has.
        rows: How many rows are expected, so that names have equally many digits.
    """

    def __init__(self, folder: Path, fields: Sequence[UnischemaField], rows: int) -> None:
        self.folder = folder
        """Where the files are."""
        self.files: dict[tuple[int, str], Path] = {}
        """Number of row and name of column to file, of the images that were written."""
        self._columns = [field.name for field in fields if holds_images(field)]
        self._digits = len(str(rows - 1))

    def saving(self, rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The rows, each once its images are written.

        Raises:
            InvalidArgumentError: They cannot be written there.
            MissingExtraError: OpenCV is not installed.
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
        content = png(pixels)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        except OSError as problem:
            raise InvalidArgumentError(
                f"--save-images {self.folder}: {path.name} cannot be written there: {problem}"
            ) from None
        self.files[number, name] = path

    @property
    def in_words(self) -> str:
        """How many there are, and where."""
        if not self._columns:
            return "no column of images, so none was saved"
        return f"{counted(len(self.files), 'image')} saved in {self.folder}"


def _in_a_path(name: str) -> str:
    """A name as part of the name of a file, another one for each name: what may mean something in paths is %XX.

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
