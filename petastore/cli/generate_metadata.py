"""`petastore generate-metadata`: a manifest, and a schema where there is one, beside Parquet that others wrote."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from petastore.cli.arguments import Debug, StorageOptions, errors_in_one_line, json_options

__all__ = ["generate_metadata"]


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

    Do so again after something else than petastore added or removed files.
    """
    with errors_in_one_line(debug=debug):
        from petastore.spark.writing.generate import schema_named
        from petastore.writers.generate import generate_metadata

        schema = None
        if unischema_class:
            sys.path.insert(0, str(Path.cwd()))  # as `python -m` does
            schema = schema_named(unischema_class)
        print(generate_metadata(url, schema, storage_options=json_options(storage_options)))
