"""`petastore throughput`: `petastore.cli.throughput` measures, and this shows it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from petastore.cli.arguments import Debug, StorageOptions, errors_in_one_line, json_options
from petastore.cli.render import throughput_line, throughput_table

if TYPE_CHECKING:
    from petastore.readers.arguments import ReaderArguments

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
                progress=lambda done, total: bar.update(task, completed=done, total=total, refresh=True),
            )
        if as_json:
            json.dump(found.as_json(), sys.stdout, indent=2)
            print()
            return
        console = Console()
        console.print(throughput_table(found))
        console.print(Text(throughput_line(found), style="bold green"), soft_wrap=True)
