"""`petastore migrate`, `export` and `generate-metadata`: add metadata to datasets and to plain Parquet."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from petastore.cli.terminal import Debug, StorageOptions, errors_in_one_line, json_options, print_line

__all__ = ["export", "generate_metadata", "migrate"]


def generate_metadata(
    url: Annotated[str, typer.Argument(help="Directory of the Parquet files.", metavar="URL")],
    unischema_class: Annotated[
        str,
        typer.Option(
            metavar="MODULE.NAME",
            help="MODULE.NAME of a Unischema; default: the schema that the dataset declares.",
        ),
    ] = "",
    storage_options: StorageOptions = "{}",
    debug: Debug = False,
) -> None:
    """Write a manifest next to existing Parquet files, so that readers skip their footers.

    Run it again after another program added or removed files.
    """
    with errors_in_one_line(debug=debug):
        from petastore.spark.writing.materialize import schema_named
        from petastore.writers.generate import generate_metadata

        schema = None
        if unischema_class:
            sys.path.insert(0, str(Path.cwd()))  # `python -m` does the same
            schema = schema_named(unischema_class)
        print(generate_metadata(url, schema, storage_options=json_options(storage_options)))


_Url = Annotated[str, typer.Argument(help="Dataset: path or URL of its directory.", metavar="URL")]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be written, and write nothing.")]


def migrate(url: _Url, dry_run: _DryRun = False, storage_options: StorageOptions = "{}", debug: Debug = False) -> None:
    """Add petastore's metadata to a Petastorm dataset.

    Writes a schema document, a manifest and row-group indexes next to Petastorm's metadata. Data files do not change,
    and Petastorm still reads the dataset. A repeated call writes only what is missing.
    """
    with errors_in_one_line(debug=debug):
        from petastore.interop.migration import migrate as migrated

        found = migrated(url, storage_options=json_options(storage_options), dry_run=dry_run)
        _list(found.written, dry_run=dry_run)
        for name, reason in found.left.items():
            print_line(f"row-group index {name!r} was not converted: {reason}", style="yellow")
        print_line(f"{found.url}: {_outcome(found.written, dry_run=dry_run)}")


def export(url: _Url, dry_run: _DryRun = False, storage_options: StorageOptions = "{}", debug: Debug = False) -> None:
    """Add the metadata that Petastorm needs to read a petastore dataset.

    Writes Petastorm's schema and row-group counts next to petastore's metadata. Fails if Petastorm cannot read the
    rows. Export again after each write.
    """
    with errors_in_one_line(debug=debug):
        from petastore.interop.petastorm_export import export as exported

        found = exported(url, storage_options=json_options(storage_options), dry_run=dry_run)
        _list(found.written, dry_run=dry_run)
        print_line(f"{found.url}: {_outcome(found.written, dry_run=dry_run)}")


def _list(written: Sequence[str], *, dry_run: bool) -> None:
    for path in written:
        print(f"{'would write' if dry_run else 'wrote'} {path}")


def _outcome(written: Sequence[str], *, dry_run: bool) -> str:
    if not written:
        return "up to date, nothing to write"
    return "dry run, nothing was written" if dry_run else "petastore and Petastorm both read it"
