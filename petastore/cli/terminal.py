"""Terminal output of all commands, and the options that all commands have.

Output is text, tables, JSON and errors in one line.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Final, TypeAlias

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from petastore.decoding.display import printable
from petastore.errors import InvalidArgumentError, PetastoreError

__all__ = [
    "Debug",
    "StorageOptions",
    "errors_in_one_line",
    "facts_table",
    "json_filters",
    "json_options",
    "print_json",
    "print_line",
    "settings_of",
]


def facts_table() -> Table:
    """Return an empty two-column table for names and values."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    return table


def print_line(line: str, *, style: str = "bold green", console: Console | None = None) -> None:
    """Print one line without wrapping, such as the summary."""
    (console or Console()).print(Text(printable(line), style=style), soft_wrap=True)


def print_json(facts: Any) -> None:
    """Print JSON, and nothing else, on stdout."""
    json.dump(facts, sys.stdout, indent=2, ensure_ascii=False)
    print()


Debug: TypeAlias = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
StorageOptions: TypeAlias = Annotated[
    str, typer.Option(metavar="JSON", help='Storage options, such as {"anon": true} for a public S3 bucket.')
]


def json_options(text: str, *, option: str = "--storage-options", example: str = '{"anon": true}') -> dict[str, Any]:
    """Parse the JSON object after an option, and return it as a dict.

    Args:
        text: Text after the option.
        option: Name of the option, for messages.
        example: Valid text, for messages.

    Raises:
        InvalidArgumentError: The text is not a JSON object.

    Example:
        >>> json_options('{"anon": true}')
        {'anon': True}
    """
    try:
        options = json.loads(text)
    except ValueError as problem:
        raise InvalidArgumentError(
            f"{option} must be a JSON object, got {text!r}, which is not JSON: {problem}"
        ) from None
    if not isinstance(options, dict):
        raise InvalidArgumentError(f"{option} must be a JSON object such as {example}, got {text!r}")
    return options


def json_filters(text: str | None) -> Any:
    """Convert the JSON after `--filters` to the `filters=` argument; None stays None.

    Conditions, which are lists in JSON, become tuples.
    """
    if text is None:
        return None
    try:
        asked = json.loads(text)
    except ValueError as problem:
        raise InvalidArgumentError(f"--filters must be JSON, got {text!r}: {problem}") from None

    def condition(one: Any) -> Any:
        if isinstance(one, list) and one and isinstance(one[0], str):
            return tuple(one)
        return [condition(each) for each in one] if isinstance(one, list) else one

    return condition(asked)


def settings_of(pairs: Iterable[str]) -> dict[str, str]:
    """Parse arguments of the form `key=value`, and return a dict.

    Raises:
        InvalidArgumentError: An argument has no `=`.

    Example:
        >>> settings_of(["spark.driver.memory=2g", "spark.x=a=b"])
        {'spark.driver.memory': '2g', 'spark.x': 'a=b'}
    """
    settings = {}
    for pair in pairs:
        key, found, value = pair.partition("=")
        if not found or not key:
            raise InvalidArgumentError(f"a setting must have the form key=value, got {pair!r}")
        settings[key] = value
    return settings


_OPTIONS: Final[Mapping[str, str]] = {
    "batch_size": "--batch-size",
    "cache_size_limit": "--cache-size-limit",
    "column": "--loss-column",
    "cur_shard": "--rank",
    "filters": "--filters",
    "interleave": "--interleave",
    "label": "--label",
    "last_batch": "--last-batch",
    "losses": "--losses",
    "measure_cycles_count": "--measure",
    "most_bytes": "--max-size",
    "port": "--port",
    "rank": "--rank",
    "reader_pool_type": "--pool-type",
    "sample": "--sample",
    "schema_fields": "--columns",
    "seconds": "--seconds",
    "shard_count": "--ranks",
    "shuffle_block_rows": "--shuffle-block-rows",
    "shuffle_buffer_bytes": "--shuffle-buffer-bytes",
    "step": "--step",
    "warmup_cycles_count": "--warmup",
    "workers_count": "--workers",
}
"""Dict from parameters in error messages to the options of the commands that set them."""

# The first word of a message, and names with an underscore; but no parts of quoted texts and paths.
_PARAMETER = re.compile(r"^\w+(?= must )|(?<![\w'\"./-])[a-z]+_\w+(?![\w'\"/-])")


def _with_options(message: str) -> str:
    """Replace names of parameters in an error message by the command-line options that set them."""
    return _PARAMETER.sub(lambda name: _OPTIONS.get(name[0], name[0]), message)


@contextlib.contextmanager
def errors_in_one_line(*, debug: bool) -> Iterator[None]:
    """Return a context manager that prints a petastore error as one line on stderr.

    After an error inside the `with` block, the program exits with code 2.

    Args:
        debug: Whether to raise the error instead, so that its traceback is shown.
    """
    try:
        yield
    except PetastoreError as problem:
        if debug:
            raise
        print_line(f"petastore: {_with_options(str(problem))}", style="red", console=Console(stderr=True))
        raise typer.Exit(2) from None
