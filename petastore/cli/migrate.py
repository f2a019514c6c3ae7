"""`petastore migrate` and `petastore export`: a dataset for petastore and Petastorm at once, from either side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from petastore.cli.arguments import Debug, StorageOptions, errors_in_one_line, json_options

__all__ = ["export", "migrate"]

_Url = Annotated[str, typer.Argument(help="Dataset: path or URL of its directory.", metavar="URL")]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be written, and write nothing.")]


def migrate(url: _Url, dry_run: _DryRun = False, storage_options: StorageOptions = "{}", debug: Debug = False) -> None:
    """Add petastore's metadata to a Petastorm dataset.

    Schema, files and row-group indexes are written beside what Petastorm wrote, and are read from then on. Data files
    are not touched, and Petastorm still reads the dataset. What is there already is not written again.
    """
    with errors_in_one_line(debug=debug):
        from petastore.interop.migration import migrate as migrated

        found = migrated(url, storage_options=json_options(storage_options), dry_run=dry_run)
        _list(found.written, dry_run=dry_run)
        for name, reason in found.left.items():
            _say(f"row-group index {name!r} is not taken over: {reason}", style="yellow")
        _say(f"{found.url}: {_outcome(found.written, dry_run=dry_run)}")


def export(url: _Url, dry_run: _DryRun = False, storage_options: StorageOptions = "{}", debug: Debug = False) -> None:
    """Add the metadata that Petastorm needs to read a petastore dataset.

    Petastorm's schema and its numbers of row groups are written beside our metadata. What Petastorm cannot read is
    refused. Export a dataset again after each write.
    """
    with errors_in_one_line(debug=debug):
        from petastore.interop.petastorm_export import export as exported

        found = exported(url, storage_options=json_options(storage_options), dry_run=dry_run)
        _list(found.written, dry_run=dry_run)
        _say(f"{found.url}: {_outcome(found.written, dry_run=dry_run)}")


def _list(written: Sequence[str], *, dry_run: bool) -> None:
    for path in written:
        print(f"{'would write' if dry_run else 'wrote'} {path}")


def _outcome(written: Sequence[str], *, dry_run: bool) -> str:
    if not written:
        return "all is there already, nothing to write"
    return "nothing was written, this was a dry run" if dry_run else "petastore and Petastorm both read it"


def _say(line: str, style: str = "bold green") -> None:
    Console(soft_wrap=True).print(Text(line, style=style))
