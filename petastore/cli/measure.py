"""`petastore throughput`: `petastore.cli.throughput` measures, and this shows it."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from petastore.cli.arguments import Debug, StorageOptions, errors_in_one_line, json_options
from petastore.cli.render import throughput_line, throughput_table
from petastore.errors import InvalidArgumentError

if TYPE_CHECKING:
    from petastore.codecs import ImageDecode
    from petastore.readers.arguments import ReaderArguments
    from petastore.transforming.transform import TransformSpec

__all__ = ["throughput"]


def throughput(
    url: Annotated[str, typer.Argument(help="A dataset: a directory or a file, as a path or a URL.", metavar="URL")],
    field_regex: Annotated[
        list[str] | None, typer.Option(help="Fields to read, by regular expressions; may be repeated.")
    ] = None,
    warmup: Annotated[int, typer.Option("--warmup", "-m", help="Rows read before the measure.")] = 200,
    measure: Annotated[int, typer.Option("--measure", "-n", help="Rows that are measured.")] = 1000,
    seconds: Annotated[float, typer.Option("--seconds", help="Measure at least so long.")] = 2,
    pool_type: Annotated[str, typer.Option("--pool-type", "-p", help="thread, process or dummy.")] = "thread",
    workers: Annotated[
        int | None, typer.Option("--workers", "-w", help="Workers; one for each CPU by default.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", "-b", help="Read batches of so many rows, not row by row.")
    ] = None,
    shuffle_rows: Annotated[bool, typer.Option("--shuffle-rows", help="Shuffle rows, as training does.")] = False,
    decode: Annotated[
        str, typer.Option(metavar="JSON", help='Hints for images, such as {"image": {"size": [224, 224]}}.')
    ] = "{}",
    transform: Annotated[
        str | None, typer.Option(metavar="MODULE.NAME", help="A TransformSpec, or a function of a row, to run.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the same as JSON, units in the names.")] = False,
    storage_options: StorageOptions = "{}",
    debug: Debug = False,
) -> None:
    """Measure how fast a dataset is read on this machine.

    Epochs follow each other without end until enough rows were read. Files that the system has in memory already are
    read from there.
    """
    with errors_in_one_line(debug=debug):
        from petastore.cli.throughput import reader_throughput

        more: ReaderArguments = {"shuffle_rows": shuffle_rows, "storage_options": json_options(storage_options)}
        hints = _decode_hints(json_options(decode, option="--decode"))
        screen = Console(stderr=True)
        # Drawn when it is told something, between the parts of the measure, and by no thread beside them.
        with Progress(console=screen, transient=True, auto_refresh=False, disable=not screen.is_terminal) as bar:
            task = bar.add_task("reading", total=None)
            found = reader_throughput(
                url,
                field_regex or None,
                warmup,
                measure,
                pool_type,
                workers,
                reader_extra_args=more,
                spawn_new_process=False,  # this one does nothing else
                batch_size=batch_size,
                seconds=seconds,
                decode=hints or None,
                transform_spec=None if transform is None else _transform_of(transform),
                progress=lambda done, total: bar.update(task, completed=done, total=total, refresh=True),
            )
        if as_json:
            json.dump(found.as_json(), sys.stdout, indent=2)
            print()
            return
        console = Console()
        console.print(throughput_table(found))
        console.print(Text(throughput_line(found), style="bold green"), soft_wrap=True)


def _decode_hints(options: dict[str, Any]) -> dict[str, ImageDecode]:
    from petastore.codecs import ImageDecode

    try:
        return {name: ImageDecode(**hint) for name, hint in options.items()}
    except TypeError as problem:
        raise InvalidArgumentError(
            f"--decode must have the arguments of ImageDecode for each field, got {options!r} ({problem})"
        ) from None


def _transform_of(name: str) -> TransformSpec:
    """Import the object of a dotted name from the working directory or an installed package."""
    from petastore.transforming.transform import TransformSpec

    module, _, attribute = name.rpartition(".")
    sys.path.insert(0, str(Path.cwd()))  # as `python -m` does
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as problem:
        raise InvalidArgumentError(
            f"--transform must name a function or a TransformSpec, got {name!r} ({problem})"
        ) from None
    finally:
        sys.path.pop(0)
    return found if isinstance(found, TransformSpec) else TransformSpec(found)
