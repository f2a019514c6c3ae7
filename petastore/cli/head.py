"""`petastore head`: show the first rows of a dataset.

Rows are shown on the terminal or as JSON; images can be saved as files.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich import box
from rich.cells import cell_len
from rich.color import Color
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from petastore.cli.terminal import (
    Debug,
    StorageOptions,
    errors_in_one_line,
    json_options,
    print_line,
)
from petastore.decoding.display import holds_images, in_words, pixels_of, png_bytes, printable, shape_in_words, shrunk
from petastore.errors import InvalidArgumentError
from petastore.plan.report.explanation import counted
from petastore.schema.field import UnischemaField

if TYPE_CHECKING:
    from petastore.dataset import Dataset

__all__ = ["SavedImages", "as_json", "head", "render_rows", "rows_as_json", "shows_pictures", "thumbnail"]


def as_json(value: Any) -> Any:
    r"""Convert a value to JSON types, without shortening it.

    NaN and infinities, which JSON does not have, become `"nan"`, `"inf"` and `"-inf"`, so that they differ from missing
    values. Times are text in NumPy's format, decimals are text, bytes are text in base64. Arrays become nested lists;
    structs become objects.

    Args:
        value: A NumPy scalar or array, `str`, `bytes`, `Decimal`, None, or a dict or list of such.

    Example:
        >>> as_json(np.array([[1, 2], [3, 4]])), as_json(np.float64("nan")), as_json(b"\0\1"), as_json(None)
        ([[1, 2], [3, 4]], 'nan', 'AAE=', None)
        >>> as_json(np.datetime64("2026-01-31T12:00", "s")), as_json({"pair": (1, b"")})
        ('2026-01-31T12:00:00', {'pair': [1, '']})
    """
    if isinstance(value, np.ndarray) and (value.dtype.kind in "biu" or _is_finite(value)):
        return value.tolist()
    if isinstance(value, (np.ndarray, list, tuple)):
        return [as_json(item) for item in value]
    if isinstance(value, dict):
        return {str(name): as_json(item) for name, item in value.items()}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return str(value)
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, float):
        return plain if math.isfinite(plain) else str(plain)
    return plain if isinstance(plain, (str, int)) or plain is None else str(plain)


def _is_finite(array: NDArray[Any]) -> bool:
    return array.dtype.kind == "f" and bool(np.isfinite(array).all())


def rows_as_json(
    fields: Sequence[UnischemaField], rows: Iterable[Mapping[str, Any]], saved: SavedImages | None, *, images: bool
) -> Iterator[dict[str, Any]]:
    """Yield each row as a dict of JSON types.

    Args:
        fields: Fields of a row.
        rows: Rows as dicts from field name to value; None is a missing value.
        saved: Saved images, whose paths are added to the images; None adds nothing.
        images: Whether images are printed as dtype and shape; otherwise as arrays.

    Example:
        >>> from petastore.codecs import NdarrayCodec
        >>> image = UnischemaField("x", "uint8", (2, 3), NdarrayCodec())
        >>> rows = [{"x": np.zeros((2, 3), "uint8")}]
        >>> [*rows_as_json([image], rows, None, images=True), *rows_as_json([image], rows, None, images=False)]
        [{'x': {'dtype': 'uint8', 'shape': [2, 3]}}, {'x': [[0, 0, 0], [0, 0, 0]]}]
    """
    told = {field.name for field in fields if images and holds_images(field)}
    for number, row in enumerate(rows):
        line: dict[str, Any] = {}
        for name, value in row.items():
            if name in told and isinstance(value, np.ndarray):
                line[name] = {"dtype": str(value.dtype), "shape": list(value.shape)}
                if saved is not None and (number, name) in saved.files:
                    line[name]["file"] = str(saved.files[number, name])
            else:
                line[name] = as_json(value)
        yield line


_LARGEST_SIDE = 32
"""Maximum side of a thumbnail in pixels: 16 lines of 32 characters."""

_LEAST_READABLE = 24
"""Minimum width of a table column of text or arrays, in characters; a column with shorter cells is narrower."""

_GAP = 2
_ROW = "row"


def shows_pictures(console: Console) -> bool:
    """Return whether images can be drawn on the terminal.

    The terminal must support colors and half-block characters.
    """
    return console.color_system is not None and not console.no_color and console.encoding.startswith("utf")


def render_rows(
    fields: Sequence[UnischemaField], rows: Iterable[Mapping[str, Any]], console: Console, *, images: bool
) -> int:
    """Print rows as a table, or one below the other if the table would be too wide.

    Args:
        fields: Fields of a row.
        rows: Rows as dicts from field name to value; None is a missing value.
        console: Console to print on. Its width decides whether rows are printed as a table, its colors whether images
            are drawn.
        images: Whether to show images as images; otherwise as arrays.

    Returns:
        Number of printed rows.
    """
    side = min(_LARGEST_SIDE, console.width // 2) if shows_pictures(console) else 0
    names = [printable(field.name) for field in fields]
    are_images = [images and holds_images(field) for field in fields]
    shown = [
        [
            _image(row[field.name], field, side) if is_image else _words(row[field.name], field)
            for field, is_image in zip(fields, are_images, strict=True)
        ]
        for row in rows
    ]
    numbers = [str(number) for number in range(len(shown))]
    naturals = [max(cell_len(name), *(_width(cells[at]) for cells in shown), 0) for at, name in enumerate(names)]
    leasts = [
        natural if is_image or _is_number(field) else min(natural, _LEAST_READABLE)
        for field, is_image, natural in zip(fields, are_images, naturals, strict=True)
    ]
    room = console.width - _GAP * len(fields) - max(len(_ROW), *map(len, numbers[-1:]), 0)
    widths = _widths(naturals, leasts, room)
    if widths is None:
        _print_blocks(names, numbers, shown, console)
    elif shown:
        _print_table(names, numbers, shown, widths, [_is_number(field) for field in fields], console)
    return len(shown)


def _words(value: Any, field: UnischemaField) -> Text:
    return Text("missing", style="dim italic") if value is None else Text(in_words(value, field.dtype_name))


def _image(value: Any, field: UnischemaField, side: int) -> Text:
    """Return a table cell for an image: a thumbnail, and below it the dtype and shape.

    Args:
        value: Pixels of the image; another value is returned as its text.
        field: Field of the image.
        side: Maximum width of the thumbnail in characters; 0 omits it.
    """
    if not isinstance(value, np.ndarray):
        return _words(value, field)
    words = Text(f"{field.dtype_name} {shape_in_words(value.shape)}", style="dim" if side else "")
    pixels = pixels_of(value) if side else None
    return words if pixels is None else Text("\n").join([thumbnail(pixels, side), words])


def _width(cell: Text) -> int:
    return max(cell_len(line) for line in cell.plain.split("\n"))


def _is_number(field: UnischemaField) -> bool:
    return field.is_scalar and field.dtype_name not in ("str", "bytes", "object")


def _widths(naturals: Sequence[int], leasts: Sequence[int], room: int) -> list[int] | None:
    """Return column widths that fit the terminal; None if they cannot fit.

    The widest columns are shortened first.

    Args:
        naturals: Width of each column with its full text, in characters.
        leasts: Minimum width of each column.
        room: Width of the terminal without gaps between columns.
    """
    if sum(leasts) > room:
        return None
    cap = max(naturals, default=0)
    while (
        sum(widths := [max(least, min(natural, cap)) for natural, least in zip(naturals, leasts, strict=True)]) > room
    ):
        cap -= 1
    return widths


def _print_table(
    names: Sequence[str],
    numbers: Sequence[str],
    shown: Sequence[Sequence[Text]],
    widths: Sequence[int],
    are_numbers: Sequence[bool],
    console: Console,
) -> None:
    has_pictures = any("\n" in cell.plain for cells in shown for cell in cells)
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        show_edge=False,
        header_style="dim",
        leading=1 if has_pictures else 0,
    )
    table.add_column(_ROW, style="dim", justify="right", no_wrap=True)
    for name, width, is_number in zip(names, widths, are_numbers, strict=True):
        header = _shortened(Text(name), width)
        table.add_column(header, min_width=width, no_wrap=True, justify="right" if is_number else "left")
    for number, cells in zip(numbers, shown, strict=True):
        table.add_row(number, *(_shortened(cell, width) for cell, width in zip(cells, widths, strict=True)))
    console.print(table)


def _print_blocks(
    names: Sequence[str], numbers: Sequence[str], shown: Sequence[Sequence[Text]], console: Console
) -> None:
    names_width = min(max(map(cell_len, names)), console.width // 3)
    room = max(console.width - names_width - _GAP, 1)
    for number, cells in zip(numbers, shown, strict=True):
        table = Table.grid(padding=(0, _GAP))
        table.add_column(style="dim", no_wrap=True)
        table.add_column(no_wrap=True)
        for name, cell in zip(names, cells, strict=True):
            table.add_row(_shortened(Text(name), names_width), _shortened(cell, room))
        console.print(Text(f"{_ROW} {number}", style="bold"))
        console.print(table)
        console.print()


def _shortened(cell: Text, width: int) -> Text:
    """Cut long lines of a cell by an ellipsis, in place, and return the cell.

    Images keep their width.
    """
    if _width(cell) > width:
        cell.truncate(width, overflow="ellipsis")
    return cell


def head(
    url: Annotated[str, typer.Argument(help="Dataset: path or URL of a directory or file.", metavar="URL")],
    rows: Annotated[int, typer.Option("--rows", "-n", min=1, help="Number of rows.")] = 5,
    columns: Annotated[list[str] | None, typer.Option(help="Column name or regular expression; repeatable.")] = None,
    no_images: Annotated[bool, typer.Option("--no-images", help="Show images as arrays.")] = False,
    save: Annotated[
        Path | None, typer.Option("--save-images", metavar="DIR", help="Write each image of these rows to DIR as PNG.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per row.")] = False,
    storage_options: StorageOptions = "{}",
    debug: Debug = False,
) -> None:
    """Show the first rows of a dataset, with image thumbnails on a color terminal.

    Reads little more than these rows of these columns.
    """
    with errors_in_one_line(debug=debug):
        from petastore.dataset import open_dataset
        from petastore.dataset.stored_cells import first_rows

        dataset = open_dataset(url, storage_options=json_options(storage_options))
        fields = _fields(dataset, columns)
        saved = None if save is None else SavedImages(save, fields, rows)
        found = first_rows(dataset, fields, rows)
        found = found if saved is None else saved.saving(found)
        console = Console(stderr=as_json)  # stdout must only contain JSON
        if as_json:
            for line in rows_as_json(fields, found, saved, images=not no_images):
                print(json.dumps(line))
            closing = None if saved is None else saved.in_words
        else:
            shown = render_rows(fields, found, console, images=not no_images)
            closing = _closing_line(dataset, fields, shown, saved)
        for reason in () if columns else dataset.unreadable.values():
            print_line(f"not shown: {reason}", style="yellow", console=console)
        if closing is not None:
            print_line(closing, console=console)


def _fields(dataset: Dataset, columns: Sequence[str] | None) -> tuple[UnischemaField, ...]:
    """Return the selected fields; without a selection, all readable fields."""
    if columns or not len(dataset.schema):
        return dataset.fields_of(columns or None)
    return tuple(dataset.schema)


def _closing_line(dataset: Dataset, fields: Sequence[UnischemaField], shown: int, saved: SavedImages | None) -> str:
    name = dataset.url.rstrip("/").rsplit("/", 1)[-1]
    every = len(dataset.schema) + len(dataset.unreadable)
    of_fields = counted(every, "field") if len(fields) == every else f"{len(fields):,} of {counted(every, 'field')}"
    line = f"{name}: {shown:,} of {counted(dataset.inventory.num_rows, 'row')}, {of_fields}"
    return line if saved is None else f"{line}, {saved.in_words}"


_UPPER_HALF = "▀"


def thumbnail(pixels: NDArray[Any], side: int) -> Text:
    """Return an image as half-block characters.

    Each character shows two pixels, one above the other.

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
    """Return the color of each pixel, as one list for each row of pixels.

    Args:
        pixels: (height, width) gray, or (height, width, 3 or 4) RGB or RGBA.
        brightest: Value of a pixel that is shown as white.
    """
    scaled = pixels * (255 / brightest)
    if scaled.ndim == 2:
        scaled = np.repeat(scaled[:, :, None], 3, axis=2)
    elif scaled.shape[2] == 4:
        scaled = scaled[:, :, :3] * scaled[:, :, 3:] / 255
    levels = np.rint(scaled).astype(np.uint8).tolist()
    return [[Color.from_rgb(*rgb) for rgb in line] for line in levels]


class SavedImages:
    """Images of rows as PNG files in a folder.

    The names of the files have the number of the row and the name of the column.

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
    """Convert a name to a unique part of a file name.

    All characters except letters, digits, `-`, `_` and space become %XX.

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
