"""Rows on a terminal: a table where that can be read, or else a block for each row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from petastore.cli.head.pictures import holds_images, pixels_of, thumbnail
from petastore.cli.head.values import in_words, shape_in_words
from petastore.cli.printable import printable
from petastore.schema.field import UnischemaField

__all__ = ["render_rows", "shows_pictures"]

_LARGEST_SIDE = 32
"""Pixels of a thumbnail: 16 lines of 32 characters."""

_LEAST_READABLE = 24
"""Characters that columns of text and arrays have at least in a table, where they need so many."""

_GAP = 2
_ROW = "row"


def shows_pictures(console: Console) -> bool:
    """Whether images can be shown: on a terminal with colours, which nobody switched off, that has half blocks."""
    return console.color_system is not None and not console.no_color and console.encoding.startswith("utf")


def render_rows(
    fields: Sequence[UnischemaField], rows: Iterable[Mapping[str, Any]], console: Console, *, images: bool
) -> int:
    """Print rows.

    Args:
        fields: What a row has.
        rows: Field name to value; None where it is missing.
        console: Where to; its width decides whether rows are a table, its colours whether images are drawn.
        images: Whether images are shown as such, or as the arrays that they are.

    Returns:
        How many rows there were.
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
    """What is shown of an image; several lines where it is drawn with pixels on some side, which 0 prevents."""
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
    """Widths of columns that fit the room together, the widest of them shortened; None where they cannot."""
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
    """The cell, of which a line that is too long ends in an ellipsis; pictures are as wide as they were made."""
    if _width(cell) > width:
        cell.truncate(width, overflow="ellipsis")
    return cell
