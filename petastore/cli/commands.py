"""The commands and their arguments; each asks another module for the facts and another one for the text."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
from rich.console import Console

import petastore
from petastore.cli import cache
from petastore.cli.arguments import Debug, StorageOptions, errors_in_one_line, json_options
from petastore.cli.copy import copy
from petastore.cli.generate_metadata import generate_metadata
from petastore.cli.head.command import head
from petastore.cli.inspect import dataset_facts
from petastore.cli.measure import throughput
from petastore.cli.migrate import export, migrate
from petastore.cli.render import render_facts

__all__ = ["app"]

app = typer.Typer(
    help="Train deep models directly from Parquet.\n\nExample: petastore inspect s3://bucket/train",
    no_args_is_help=True,
    # A traceback is shown where it was asked for, and then Python's own.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"petastore {petastore.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Train deep models directly from Parquet.

    Example: petastore inspect s3://bucket/train
    """


@app.command(short_help="Show fields, row groups and sizes of a dataset.")
def inspect(
    url: Annotated[str, typer.Argument(help="Dataset: path or URL of a directory or file.", metavar="URL")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; sizes are in bytes.")] = False,
    every_field: Annotated[bool, typer.Option("--all", help="List all fields of wide datasets.")] = False,
    storage_options: StorageOptions = "{}",
    debug: Debug = False,
) -> None:
    """Show fields, codecs, files, row groups, sizes and the writer of a dataset."""
    with errors_in_one_line(debug=debug):
        from petastore.dataset import open_dataset

        facts = dataset_facts(open_dataset(url, storage_options=json_options(storage_options)))
        if as_json:
            json.dump(facts.as_json(), sys.stdout, indent=2, ensure_ascii=False)
            print()
        else:
            console = Console()
            # What is piped is searched, not looked at: nothing is left out there.
            render_facts(facts, console, every_field=every_field or not console.is_terminal)


@app.command(short_help="Show batches, order and cost of an epoch on several ranks.")
def plan(
    url: Annotated[str, typer.Argument(help="A dataset: a directory or a file, as a path or a URL.", metavar="URL")],
    batch_size: Annotated[int, typer.Option("--batch-size", "-b", help="Rows of a batch on one rank.")],
    ranks: Annotated[int, typer.Option("--ranks", "-r", help="Ranks that share an epoch.")] = 1,
    rank: Annotated[int, typer.Option("--rank", help="The rank whose reads are shown, from 0.")] = 0,
    field_regex: Annotated[
        list[str] | None, typer.Option(help="Fields to read, by regular expressions; may be repeated.")
    ] = None,
    shuffle_rows: Annotated[bool, typer.Option("--shuffle-rows", help="Shuffle rows.")] = False,
    seed: Annotated[int | None, typer.Option("--seed", help="The seed of the order.")] = None,
    last_batch: Annotated[
        str, typer.Option("--last-batch", help="even, drop, pad or wrap: the last batch of an epoch.")
    ] = "even",
    as_json: Annotated[bool, typer.Option("--json", help="Print the same as JSON.")] = False,
    storage_options: StorageOptions = "{}",
    debug: Debug = False,
) -> None:
    """Show what an epoch of training reads: steps of each rank, order, bytes and memory. No data is read for that."""
    with errors_in_one_line(debug=debug):
        from petastore.dataset import open_dataset
        from petastore.distributed import Shard
        from petastore.plan import Tail
        from petastore.readers.column_bytes import column_bytes

        dataset = open_dataset(url, storage_options=json_options(storage_options))
        planned = dataset.plan(
            columns=field_regex or None,
            seed=seed,
            shuffle_rows=shuffle_rows,
            shard=Shard(rank, ranks),
            last_batch=Tail.parse(last_batch),
        )
        explanation = planned.explain(batch_size, column_bytes=column_bytes(dataset, planned.request.columns))
        print(json.dumps(explanation.as_dict(), indent=2) if as_json else explanation)


# A line of 80 columns each in `petastore --help`.
app.command(short_help="Show the first rows, with images.")(head)
app.command()(throughput)
app.command(short_help="Write a manifest and schema for existing Parquet files.")(generate_metadata)
app.command()(migrate)
app.command()(export)
app.command(short_help="Copy a dataset, or a part of it.")(copy)
app.add_typer(cache.app, name="cache")
