"""The commands and their arguments; each asks another module for the facts and another one for the text."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

import petastore
from petastore.cli.inspect import dataset_facts
from petastore.cli.render import render_facts
from petastore.errors import PetastoreError, RequestError

__all__ = ["app"]

app = typer.Typer(
    help="Train deep models straight from Parquet.",
    no_args_is_help=True,
    add_completion=False,
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
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Train deep models straight from Parquet."""


@app.command()
def inspect(
    url: Annotated[str, typer.Argument(help="A dataset: a directory or a file, as a path or a URL.", metavar="URL")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the same facts as JSON, sizes in bytes.")] = False,
    every_field: Annotated[bool, typer.Option("--all", help="List all fields, however many there are.")] = False,
    storage_options: Annotated[
        str, typer.Option(metavar="JSON", help='Options of the storage, for instance {"anon": true} for public S3.')
    ] = "{}",
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Show what a dataset holds: fields, codecs, files, row groups, sizes and who wrote it."""
    with _errors_in_one_line(debug=debug):
        from petastore.dataset import open_dataset

        facts = dataset_facts(open_dataset(url, storage_options=_options(storage_options)))
        if as_json:
            json.dump(facts.as_json(), sys.stdout, indent=2, ensure_ascii=False)
            print()
        else:
            console = Console()
            # What is piped is searched, not looked at: nothing is left out there.
            render_facts(facts, console, every_field=every_field or not console.is_terminal)


def _options(text: str) -> dict[str, Any]:
    try:
        options = json.loads(text)
    except ValueError as problem:
        raise RequestError(f"--storage-options takes a JSON object, but {text!r} is no JSON: {problem}") from None
    if not isinstance(options, dict):
        raise RequestError(f'--storage-options takes a JSON object such as {{"anon": true}}, but {text!r} was given')
    return options


@contextlib.contextmanager
def _errors_in_one_line(*, debug: bool) -> Iterator[None]:
    try:
        yield
    except PetastoreError as problem:
        if debug:
            raise
        console = Console(stderr=True, soft_wrap=True)
        console.print(Text(f"petastore: {problem}", style="red"))
        raise typer.Exit(2) from None
