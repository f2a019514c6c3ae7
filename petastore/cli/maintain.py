"""Commands that maintain datasets: copy, verify, and write or repair metadata."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from petastore.cli.terminal import (
    Debug,
    StorageOptions,
    errors_in_one_line,
    json_options,
    print_json,
    print_line,
    settings_of,
)
from petastore.errors import InvalidArgumentError
from petastore.plan.report.explanation import counted

if TYPE_CHECKING:
    from petastore.inventory import Inventory
    from petastore.verification.report import Problem, VerifyReport

__all__ = ["copy", "export", "generate_metadata", "migrate", "repair", "verify"]

_Url = Annotated[str, typer.Argument(help="Dataset: path or URL of its directory.", metavar="URL")]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be written, and write nothing.")]
_MIGRATED = ("up to date, nothing to write", "petastore and Petastorm both read it")
"""Messages of `migrate` and `export`: nothing was missing; files were written."""

_INTERRUPTED = 130
"""Exit code after Ctrl-C, the usual one of shells; exit code 1 would mean that problems were found."""


def verify(
    url: Annotated[str, typer.Argument(help="Dataset: path or URL of a directory or file.", metavar="URL")],
    columns: Annotated[list[str] | None, typer.Option(help="Column name or regular expression; repeatable.")] = None,
    sample: Annotated[
        int | None, typer.Option("--sample", metavar="N", help="Read N evenly spaced row groups; default: all.")
    ] = None,
    workers: Annotated[int | None, typer.Option("--workers", "-w", help="Row groups read in parallel.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    storage_options: StorageOptions = "{}",
    debug: Debug = False,
) -> None:
    """Check files, footers, checksums, statistics and every cell.

    Exit codes: 0 without problems, 1 with problems, 2 if the check could not run.
    """
    with errors_in_one_line(debug=debug), _interruptible():
        from petastore.verification.verify import verify as verified

        report = verified(
            url,
            columns=columns or None,
            sample=sample,
            workers_count=workers,
            storage_options=json_options(storage_options),
            progress=True,
        )
        if as_json:
            print_json(dataclasses.asdict(report))
        else:
            _show(report)
    if report.problems:
        raise typer.Exit(1)


def repair(
    url: _Url,
    dry_run: _DryRun = False,
    storage_options: StorageOptions = "{}",
    debug: Debug = False,
) -> None:
    """Rebuild a lost or damaged manifest or schema document from intact data files.

    Data files do not change. Fails if a data file is missing, damaged or changed.
    """
    with errors_in_one_line(debug=debug):
        from petastore.verification.repair import repair as repaired

        found = repaired(url, storage_options=json_options(storage_options), dry_run=dry_run)
        _list(found.written, dry_run=dry_run)
        for name, reason in found.left.items():
            print_line(f"{name} was not repaired: {reason}", style="yellow")
        print_line(f"{found.url}: {_outcome(found.written, 'nothing to repair', 'metadata repaired', dry_run=dry_run)}")


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        print_line("petastore: interrupted", style="yellow", console=Console(stderr=True))
        raise typer.Exit(_INTERRUPTED) from None


def _show(report: VerifyReport) -> None:
    for problem in report.problems:
        print_line(_line(problem), style="red")
    for name, reason in report.unsupported.items():
        print_line(f"column {name!r} was not checked: {reason}", style="yellow")
    checked = f"{counted(report.files, 'file')}, {counted(report.row_groups, 'row group')}"
    if report.row_groups < report.row_groups_total:
        checked += f" of {report.row_groups_total:,}"
    checked += f", {counted(report.rows, 'row')}, {counted(report.cells, 'cell')}"
    found = counted(len(report.problems), "problem") if report.problems else "no problems"
    print_line(f"{report.url}: {found} in {checked}", style="bold red" if report.problems else "bold green")


def _line(problem: Problem) -> str:
    place = [] if problem.file is None else [problem.file]
    place += [] if problem.row_group is None else [f"row group {problem.row_group:,}"]
    place += [] if problem.column is None else [f"column {problem.column!r}"]
    place += [] if problem.row is None else [f"row {problem.row:,}"]
    where = f" {', '.join(place)}" if place else ""
    more = f" ({problem.count:,} cells)" if problem.count > 1 else ""
    return f"{problem.kind}{where}: {problem.message}{more}"


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
        from petastore.dataset import open_dataset
        from petastore.spark.writing.materialize import schema_named
        from petastore.writers.generate import generate_metadata

        schema = None
        if unischema_class:
            sys.path.insert(0, str(Path.cwd()))  # `python -m` does the same
            schema = schema_named(unischema_class)
        options = json_options(storage_options)
        inventory = generate_metadata(url, schema, storage_options=options)
        dataset = open_dataset(url, storage_options=options)
        for reason in dataset.unreadable.values():
            print_line(reason, style="yellow")
        what = f"the schema {dataset.schema.name!r}" if dataset.has_schema_document else "no schema"
        print_line(f"{dataset.url}: wrote a manifest of {_contents(inventory)}, with {what}")


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
        print_line(f"{found.url}: {_outcome(found.written, *_MIGRATED, dry_run=dry_run)}")


def export(url: _Url, dry_run: _DryRun = False, storage_options: StorageOptions = "{}", debug: Debug = False) -> None:
    """Add the metadata that Petastorm needs to read a petastore dataset.

    Writes Petastorm's schema and row-group counts next to petastore's metadata. Fails if Petastorm cannot read the
    rows. Export again after each write.
    """
    with errors_in_one_line(debug=debug):
        from petastore.interop.petastorm_export import export as exported

        found = exported(url, storage_options=json_options(storage_options), dry_run=dry_run)
        _list(found.written, dry_run=dry_run)
        print_line(f"{found.url}: {_outcome(found.written, *_MIGRATED, dry_run=dry_run)}")


def _list(written: Sequence[str], *, dry_run: bool) -> None:
    for path in written:
        print_line(f"{'would write' if dry_run else 'wrote'} {path}", style="")


def _outcome(written: Sequence[str], nothing: str, done: str, *, dry_run: bool) -> str:
    if not written:
        return nothing
    return "dry run, nothing was written" if dry_run else done


def _contents(inventory: Inventory) -> str:
    groups, rows = counted(inventory.num_row_groups, "row group"), counted(inventory.num_rows, "row")
    return f"{counted(len(inventory.files), 'file')}, {groups}, {rows}"


def copy(
    source_url: Annotated[str, typer.Argument(help="Dataset, or plain Parquet: path or URL.", metavar="SOURCE")],
    target_url: Annotated[str, typer.Argument(help="Directory of the copy: path or URL.", metavar="TARGET")],
    overwrite_output: Annotated[bool, typer.Option("--overwrite-output", help="Replace an existing TARGET.")] = False,
    columns: Annotated[
        list[str] | None,
        typer.Option("--columns", "--field-regex", help="Column name or regular expression; repeatable."),
    ] = None,
    not_null_fields: Annotated[
        list[str] | None, typer.Option(help="Skip rows in which this column is null; repeatable.")
    ] = None,
    partition_count: Annotated[int | None, typer.Option(help="Maximum number of files of the copy.")] = None,
    row_group_size_mb: Annotated[
        float | None, typer.Option(help="Approximate row-group size in MiB; default: 32.")
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(
            help="Copy with Spark: its master, such as local[4], or sc://host:port of a Connect server. Default: no "
            "Spark."
        ),
    ] = None,
    spark_session_config: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Spark setting; repeatable.")
    ] = None,
    storage_options: StorageOptions = "{}",
    debug: Debug = False,
) -> None:
    """Copy a dataset, or some of its columns and rows. Stored cells are copied unchanged."""
    with errors_in_one_line(debug=debug):
        from petastore.storage.requests.failures import shown_url

        options, settings = json_options(storage_options), settings_of(spark_session_config or ())
        options_of_copy: dict[str, Any] = {
            "field_regex": columns or None,
            "not_null_fields": not_null_fields or None,
            "overwrite_output": overwrite_output,
            "row_group_size_mb": row_group_size_mb,
            "storage_options": options,
            "progress": True,
        }
        if master is None and not settings:
            from petastore.writers.copying import copy_cells

            inventory = copy_cells(source_url, target_url, files_count=partition_count, **options_of_copy)
            print_line(f"{shown_url(target_url)}: copied {_contents(inventory)}")
            return
        from petastore.spark import copy_dataset

        spark = _session(master or "local[2]", settings)
        try:
            inventory = copy_dataset(spark, source_url, target_url, partitions_count=partition_count, **options_of_copy)
            print_line(f"{shown_url(target_url)}: copied {_contents(inventory)}")
        finally:
            spark.stop()


def _session(master: str, settings: dict[str, str]) -> Any:
    from petastore.spark import connect_session, local_session

    if master.startswith("sc://"):
        return connect_session(master, **settings)
    if master.startswith("local"):
        return local_session("petastore copy", master, **settings)
    raise InvalidArgumentError(
        f"--master must be local[cores] or sc://host:port, got {master!r}. For a session of another cluster call "
        "petastore.spark.copy_dataset"
    )
