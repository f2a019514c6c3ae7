"""`petastore verify` and `repair`: list damaged files, pages and cells, and rebuild lost metadata."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from petastore.cli.terminal import (
    Debug,
    StorageOptions,
    counted,
    errors_in_one_line,
    json_options,
    print_json,
    print_line,
)

if TYPE_CHECKING:
    from petastore.verification.report import Problem, VerifyReport

__all__ = ["repair", "verify"]

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
    url: Annotated[str, typer.Argument(help="Dataset: path or URL of its directory.", metavar="URL")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be written, and write nothing.")] = False,
    storage_options: StorageOptions = "{}",
    debug: Debug = False,
) -> None:
    """Rebuild a lost or damaged manifest or schema document from intact data files.

    Data files do not change. Fails if a data file is missing, damaged or changed.
    """
    with errors_in_one_line(debug=debug):
        from petastore.verification.repair import repair as repaired

        found = repaired(url, storage_options=json_options(storage_options), dry_run=dry_run)
        for path in found.written:
            print_line(f"{'would write' if dry_run else 'wrote'} {path}", style="")
        for name, reason in found.left.items():
            print_line(f"{name} was not repaired: {reason}", style="yellow")
        outcome = "dry run, nothing was written" if dry_run else "metadata repaired"
        print_line(f"{found.url}: {outcome if found.written else 'nothing to repair'}")


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
