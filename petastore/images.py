"""Folders of image files as rows for `write_dataset`.

Files are stored unchanged, and folder names become labels.
"""

from __future__ import annotations

import dataclasses
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np

from petastore.codecs import CompressedImageCodec
from petastore.codecs.images.image_decode import ImageMode
from petastore.errors import InvalidArgumentError
from petastore.schema import Unischema, UnischemaField

__all__ = ["ImageFolder", "from_folder"]


_SUFFIXES = frozenset([".jpg", ".jpeg", ".png"])


@dataclasses.dataclass(frozen=True)
class ImageFolder:
    """The image files of a folder as an iterable of rows, with a schema.

    `from_folder` returns it. A row is a dict with `image` (the bytes of the file), `path` (relative to the folder) and,
    with classes, `label` (index in `classes`). Files are read during iteration.
    """

    root: Path
    """Path of the folder."""

    paths: tuple[str, ...]
    """Paths of the files in the folder, in row order, with `/` on every system."""

    classes: tuple[str, ...]
    """Names of the subfolders, sorted: label 0 is the first. Empty if there are none."""

    schema: Unischema
    """The schema of the rows."""

    def __len__(self) -> int:
        return len(self.paths)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        numbers = {name: number for number, name in enumerate(self.classes)}
        for path in self.paths:
            row: dict[str, Any] = {"image": (self.root / path).read_bytes(), "path": path}
            yield {**row, "label": numbers[path.partition("/")[0]]} if numbers else row

    def __repr__(self) -> str:
        return f"ImageFolder({str(self.root)!r}, {len(self.paths):,} images, {len(self.classes):,} classes)"


def from_folder(folder: str | os.PathLike[str], *, mode: ImageMode = "rgb", seed: int | None = None) -> ImageFolder:
    """Return the PNG and JPEG files of a local folder as rows for `write_dataset`.

    Each subfolder is a class. `folder/cat/1.jpg` gets the label of `cat`. Without subfolders there are no labels. Files
    and folders whose names begin with a dot are skipped.

    Args:
        folder: Path of the folder; subfolders are searched recursively.
        mode: `"rgb"` reads every image as (height, width, 3), gray and CMYK files too; `"gray"` declares gray images.
        seed: Seed for shuffling the rows; None sorts them by path, class after class.

    Returns:
        The rows, with their `schema` and `classes`.

    Raises:
        InvalidArgumentError: `folder` has no image files, or has images both directly and in subfolders; or `mode` is
            unknown.

    Example:
        >>> import tempfile, petastore
        >>> root = Path(tempfile.mkdtemp())
        >>> codec = CompressedImageCodec("png")
        >>> pixel = codec.encode(UnischemaField("x", "uint8", (1, 1, 3), codec), np.zeros((1, 1, 3), "uint8"))
        >>> for name in ("cat/1.png", "dog/2.png"):
        ...     (root / name).parent.mkdir()
        ...     _ = (root / name).write_bytes(pixel)
        >>> photos = from_folder(root)
        >>> photos.classes, [(row["path"], row["label"]) for row in photos]
        (('cat', 'dog'), [('cat/1.png', 0), ('dog/2.png', 1)])
        >>> petastore.write_dataset(root / "dataset", photos.schema, photos)
        Inventory(1 file, 1 row group, 2 rows)
    """
    if mode not in get_args(ImageMode):
        raise InvalidArgumentError(f"mode must be 'rgb' or 'gray', got {mode!r}")
    root = Path(folder)
    paths = sorted(
        path.relative_to(root).as_posix()
        for path in root.rglob("*")
        if path.suffix.lower() in _SUFFIXES and path.is_file() and not _is_hidden(path.relative_to(root))
    )
    if not paths:
        raise InvalidArgumentError(f"folder must hold .png, .jpg or .jpeg files, got none in {os.fspath(folder)!r}")
    classes = sorted({path.partition("/")[0] for path in paths if "/" in path})
    if classes and any("/" not in path for path in paths):
        raise InvalidArgumentError(
            "folder must have its images either in subfolders, one per class, or directly in it, got both in "
            f"{os.fspath(folder)!r}. Move the files, or write each part separately"
        )
    if seed is not None:
        random.Random(seed).shuffle(paths)  # noqa: S311 - not used for security
    is_png = paths[0].lower().endswith(".png")
    shape = (None, None, 3) if mode == "rgb" else (None, None)
    fields = [
        UnischemaField("image", np.uint8, shape, CompressedImageCodec("png" if is_png else "jpeg")),
        UnischemaField("path", str),
        *([UnischemaField("label", np.int64)] if classes else []),
    ]
    return ImageFolder(root, tuple(paths), tuple(classes), Unischema("images", fields))


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)
