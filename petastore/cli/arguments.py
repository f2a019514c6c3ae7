"""What the commands share: how options are read, and how an error of ours is said in one line."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, TypeAlias

import typer
from rich.console import Console
from rich.text import Text

from petastore.cli.printable import printable
from petastore.errors import InvalidArgumentError, PetastoreError

__all__ = ["Debug", "StorageOptions", "errors_in_one_line", "json_options", "settings_of"]

Debug: TypeAlias = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
StorageOptions: TypeAlias = Annotated[
    str, typer.Option(metavar="JSON", help='Storage options, such as {"anon": true} for a public S3 bucket.')
]


def json_options(text: str, *, option: str = "--storage-options") -> dict[str, Any]:
    """The JSON object after an option.

    Raises:
        InvalidArgumentError: It is none.

    Example:
        >>> json_options('{"anon": true}')
        {'anon': True}
    """
    try:
        options = json.loads(text)
    except ValueError as problem:
        raise InvalidArgumentError(f"{option} takes a JSON object, but {text!r} is no JSON: {problem}") from None
    if not isinstance(options, dict):
        raise InvalidArgumentError(f'{option} takes a JSON object such as {{"anon": true}}, but {text!r} was given')
    return options


def settings_of(pairs: Iterable[str]) -> dict[str, str]:
    """Keys and values of `key=value`.

    Raises:
        InvalidArgumentError: One has no `=`.

    Example:
        >>> settings_of(["spark.driver.memory=2g", "spark.x=a=b"])
        {'spark.driver.memory': '2g', 'spark.x': 'a=b'}
    """
    settings = {}
    for pair in pairs:
        key, found, value = pair.partition("=")
        if not found or not key:
            raise InvalidArgumentError(f"a setting is written as key=value, but {pair!r} was given")
        settings[key] = value
    return settings


@contextlib.contextmanager
def errors_in_one_line(*, debug: bool) -> Iterator[None]:
    """An error of ours in the block becomes one line on stderr, and exit code 2.

    Args:
        debug: Let it through, so that its traceback is seen.
    """
    try:
        yield
    except PetastoreError as problem:
        if debug:
            raise
        console = Console(stderr=True, soft_wrap=True)
        console.print(Text(f"petastore: {printable(str(problem))}", style="red"))
        raise typer.Exit(2) from None
