"""`petastore head`: the first rows of a dataset on the terminal, as JSON, and their images as files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from petastore.cli.arguments import Debug, StorageOptions, errors_in_one_line, json_options
from petastore.cli.printable import printable
from petastore.cli.render import counted

if TYPE_CHECKING:
    from petastore.cli.head.saved_images import SavedImages
    from petastore.dataset import Dataset
    from petastore.schema import UnischemaField

__all__ = ["head"]


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
        from petastore.cli.head.json_rows import rows_as_json
        from petastore.cli.head.render_rows import render_rows
        from petastore.cli.head.saved_images import SavedImages
        from petastore.dataset import open_dataset
        from petastore.dataset.first_rows import first_rows

        dataset = open_dataset(url, storage_options=json_options(storage_options))
        fields = _fields(dataset, columns)
        saved = None if save is None else SavedImages(save, fields, rows)
        found = first_rows(dataset, fields, rows)
        found = found if saved is None else saved.saving(found)
        console = Console(stderr=as_json)  # beside the JSON, where that is for a program
        if as_json:
            for line in rows_as_json(fields, found, saved, images=not no_images):
                print(json.dumps(line))
            closing = None if saved is None else saved.in_words
        else:
            shown = render_rows(fields, found, console, images=not no_images)
            closing = _closing_line(dataset, fields, shown, saved)
        for reason in () if columns else dataset.unreadable.values():
            _say(f"not shown: {reason}", console, style="yellow")
        if closing is not None:
            _say(closing, console)


def _fields(dataset: Dataset, columns: Sequence[str] | None) -> tuple[UnischemaField, ...]:
    """The fields that are asked for; all that can be read where none is, if there are any."""
    if columns or not len(dataset.schema):
        return dataset.fields_of(columns or None)
    return tuple(dataset.schema)


def _closing_line(dataset: Dataset, fields: Sequence[UnischemaField], shown: int, saved: SavedImages | None) -> str:
    name = dataset.url.rstrip("/").rsplit("/", 1)[-1]
    every = len(dataset.schema) + len(dataset.unreadable)
    of_fields = counted(every, "field") if len(fields) == every else f"{len(fields):,} of {counted(every, 'field')}"
    line = f"{name}: {shown:,} of {counted(dataset.inventory.num_rows, 'row')}, {of_fields}"
    return line if saved is None else f"{line}, {saved.in_words}"


def _say(line: str, console: Console, style: str = "bold green") -> None:
    console.print(Text(printable(line), style=style), soft_wrap=True)
