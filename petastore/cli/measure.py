"""`petastore throughput` and `petastore tune`: print rates of reading.

`petastore.tuning` measures the rates.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from petastore.cli.render import throughput_line, throughput_table
from petastore.cli.terminal import Debug, StorageOptions, errors_in_one_line, json_options, print_json, print_line
from petastore.errors import InvalidArgumentError
from petastore.monitoring.progress import ProgressDisplay

if TYPE_CHECKING:
    from petastore.codecs import ImageDecode
    from petastore.readers.options import PassedKwargs
    from petastore.transforming.transform import TransformSpec

__all__ = ["throughput", "tune"]

_Url = Annotated[str, typer.Argument(help="Dataset: path or URL of a directory or file.", metavar="URL")]
_BatchSize = Annotated[int | None, typer.Option("--batch-size", "-b", help="Rows per batch; default: read row by row.")]
_ShuffleRows = Annotated[bool, typer.Option("--shuffle-rows", help="Shuffle rows, as in training.")]
_Decode = Annotated[
    str, typer.Option(metavar="JSON", help='ImageDecode options, such as {"image": {"size": [224, 224]}}.')
]
_Transform = Annotated[
    str | None, typer.Option(metavar="MODULE.NAME", help="A TransformSpec, or a function of a row, to apply.")
]


def throughput(
    url: _Url,
    columns: Annotated[
        list[str] | None,
        typer.Option("--columns", "--field-regex", help="Column name or regular expression; repeatable."),
    ] = None,
    warmup: Annotated[int, typer.Option("--warmup", "-m", help="Rows to read before measuring.")] = 200,
    measure: Annotated[int, typer.Option("--measure", "-n", help="Minimum rows to measure.")] = 1000,
    seconds: Annotated[float, typer.Option("--seconds", help="Minimum seconds to measure.")] = 2,
    pool_type: Annotated[
        str, typer.Option("--pool-type", "-p", help="Workers: thread, process or dummy (one thread).")
    ] = "thread",
    workers: Annotated[int | None, typer.Option("--workers", "-w", help="Workers; default: one per CPU.")] = None,
    batch_size: _BatchSize = None,
    shuffle_rows: _ShuffleRows = False,
    decode: _Decode = "{}",
    transform: _Transform = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; units are in the names.")] = False,
    storage_options: StorageOptions = "{}",
    debug: Debug = False,
) -> None:
    """Measure how fast a dataset is read on this machine.

    Reads epoch after epoch until enough rows are measured. Files in the page cache are read from memory.
    """
    with errors_in_one_line(debug=debug):
        from petastore.tuning import reader_throughput

        given = _arguments_of(columns, decode, transform, storage_options, shuffle_rows=shuffle_rows)
        with ProgressDisplay("reading", "rows", bar_s=0.0) as display:
            found = reader_throughput(
                url,
                None,
                warmup,
                measure,
                pool_type,
                workers,
                reader_extra_args=given,
                spawn_new_process=False,  # this process uses its memory only for the reader
                batch_size=batch_size,
                seconds=seconds,
                progress=display.update,
            )
        if as_json:
            print_json(found.as_json())
            return
        Console().print(throughput_table(found))
        print_line(throughput_line(found))


def tune(
    url: _Url,
    batch_size: _BatchSize = None,
    seconds: Annotated[float, typer.Option("--seconds", help="Seconds for all measurements.")] = 60,
    columns: Annotated[list[str] | None, typer.Option(help="Column name or regular expression; repeatable.")] = None,
    shuffle_rows: _ShuffleRows = False,
    decode: _Decode = "{}",
    transform: _Transform = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; rates are in rows per second.")] = False,
    storage_options: StorageOptions = "{}",
    debug: Debug = False,
) -> None:
    """Find the settings with which this machine reads a dataset fastest, and print the code to copy.

    Reads a sample of the row groups again and again, with other workers, pools and caches, for about a minute.
    """
    with errors_in_one_line(debug=debug):
        from petastore import tuning

        given = _arguments_of(columns, decode, transform, storage_options, shuffle_rows=shuffle_rows)
        with ProgressDisplay("tuning", "measurements", bar_s=0.0) as display:
            found = tuning.tune(
                url,
                batch_size=batch_size,
                seconds=seconds,
                on_progress=display.update,
                **given,
            )
        if as_json:
            print_json(found.as_json())
        else:
            print(found)


def _arguments_of(
    columns: list[str] | None, decode: str, transform: str | None, storage_options: str, *, shuffle_rows: bool
) -> PassedKwargs:
    """Convert values of command-line options to keyword arguments of `make_reader`.

    Options that the user did not set are left out.
    """
    given: PassedKwargs = {"schema_fields": columns} if columns else {}
    if shuffle_rows:
        given["shuffle_rows"] = True
    storage = json_options(storage_options)
    if storage:
        given["storage_options"] = storage
    hints = _decode_hints(json_options(decode, option="--decode", example='{"image": {"size": [224, 224]}}'))
    if hints:
        given["decode"] = hints
    if transform is not None:
        given["transform_spec"] = _transform_of(transform)
    return given


def _decode_hints(options: dict[str, Any]) -> dict[str, ImageDecode]:
    from petastore.codecs import ImageDecode

    try:
        return {name: ImageDecode(**hint) for name, hint in options.items()}
    except TypeError as problem:
        raise InvalidArgumentError(
            f"--decode must have the arguments of ImageDecode for each field, got {options!r} ({problem})"
        ) from None


def _transform_of(name: str) -> TransformSpec:
    """Import the transform with a dotted name, and return it as a `TransformSpec`.

    It is searched in the working directory and in installed packages.
    """
    from petastore.transforming.transform import TransformSpec

    module, _, attribute = name.rpartition(".")
    sys.path.insert(0, str(Path.cwd()))  # `python -m` does the same
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as problem:
        raise InvalidArgumentError(
            f"--transform must name a function or a TransformSpec, got {name!r} ({problem})"
        ) from None
    finally:
        sys.path.pop(0)
    return found if isinstance(found, TransformSpec) else TransformSpec(found)
