"""Commands of `petastore` and their arguments.

Other modules compute and print the results.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import webbrowser
from typing import Annotated

import typer
from rich.console import Console

import petastore
from petastore.cli import cache
from petastore.cli.head import head
from petastore.cli.inspect import dataset_facts
from petastore.cli.maintain import copy, export, generate_metadata, migrate, repair, verify
from petastore.cli.measure import throughput, tune
from petastore.cli.render import render_facts
from petastore.cli.terminal import Debug, StorageOptions, errors_in_one_line, json_options, print_json
from petastore.cli.trace_command import trace

__all__ = ["app"]

app = typer.Typer(
    help="Train deep models directly from Parquet.\n\nExample: petastore inspect s3://bucket/train",
    no_args_is_help=True,
    # A traceback is shown only on request, in Python's own format.
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
            print_json(dataclasses.asdict(facts))
        else:
            console = Console()
            # Piped output is often searched, so it lists all fields.
            render_facts(facts, console, every_field=every_field or not console.is_terminal)


@app.command(short_help="Show batches, order and cost of an epoch on several ranks.")
def plan(
    url: Annotated[str, typer.Argument(help="Dataset: path or URL of a directory or file.", metavar="URL")],
    batch_size: Annotated[int, typer.Option("--batch-size", "-b", help="Rows per batch on each rank.")],
    ranks: Annotated[int, typer.Option("--ranks", "-r", help="Number of ranks.")] = 1,
    rank: Annotated[int, typer.Option("--rank", help="Rank to show, from 0.")] = 0,
    columns: Annotated[list[str] | None, typer.Option(help="Column name or regular expression; repeatable.")] = None,
    shuffle_rows: Annotated[bool, typer.Option("--shuffle-rows", help="Shuffle rows, as in training.")] = False,
    seed: Annotated[int | None, typer.Option("--seed", help="Same seed as the training reader.")] = None,
    last_batch: Annotated[
        str, typer.Option("--last-batch", help="Last batch of an epoch: even, drop, pad or wrap.")
    ] = "even",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; sizes are in bytes.")] = False,
    storage_options: StorageOptions = "{}",
    debug: Debug = False,
) -> None:
    """Show the steps, order, bytes and memory of an epoch. Reads footers only."""
    with errors_in_one_line(debug=debug):
        from petastore.dataset import open_dataset
        from petastore.distributed import Shard
        from petastore.plan import LastBatch
        from petastore.readers.fetches import column_bytes

        dataset = open_dataset(url, storage_options=json_options(storage_options))
        planned = dataset.plan(
            columns=columns or None,
            seed=seed,
            shuffle_rows=shuffle_rows,
            shard=Shard(rank, ranks),
            last_batch=LastBatch.parse(last_batch),
        )
        explanation = planned.explain(batch_size, column_bytes=column_bytes(dataset, planned.request.columns))
        print(json.dumps(explanation.as_dict(), indent=2) if as_json else explanation)


@app.command(short_help="Show a dataset on a local web page.")
def view(
    url: Annotated[str, typer.Argument(help="Dataset: path or URL of a directory or file.", metavar="URL")],
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
    storage_options: StorageOptions = "{}",
    debug: Debug = False,
) -> None:
    """Show samples, row groups, statistics and the order of a dataset on a local web page, until Ctrl-C.

    Only this machine can open the page, and only with the token in its address.
    """
    with errors_in_one_line(debug=debug):
        from petastore.view import serve

        viewer = serve(url, port=port, storage_options=json_options(storage_options))
        with viewer, contextlib.suppress(KeyboardInterrupt):
            print(viewer.url, flush=True)
            if not no_browser:
                webbrowser.open(viewer.url)
            viewer.wait()


# One line of 80 columns for each command in `petastore --help`.
app.command(short_help="Show the first rows, with images.")(head)
app.command()(throughput)
app.command(short_help="Find the fastest settings of a reader, by measuring.")(tune)
app.command(short_help="Write a manifest and schema for existing Parquet files.")(generate_metadata)
app.command()(migrate)
app.command()(export)
app.command(short_help="Check files, checksums, statistics and every cell.")(verify)
app.command(short_help="Rebuild lost or damaged metadata.")(repair)
app.command(short_help="Copy a dataset, or a part of it.")(copy)
app.command(short_help="Show the rows of a step, or those behind loss spikes.")(trace)
app.add_typer(cache.app, name="cache")
