"""Arguments and output of `petastore trace`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.table import Table

from petastore.cli.head import SavedImages, render_rows, rows_as_json
from petastore.cli.terminal import (
    Debug,
    StorageOptions,
    errors_in_one_line,
    json_filters,
    json_options,
    print_json,
    print_line,
)
from petastore.decoding.display import holds_images, printable
from petastore.errors import InvalidArgumentError
from petastore.plan.report.explanation import counted
from petastore.schema.field import UnischemaField

if TYPE_CHECKING:
    from petastore.dataset import Dataset
    from petastore.plan import Plan
    from petastore.plan.report.step_rows import StepRows
    from petastore.tracing import Ranked, SpikeRanking

__all__ = ["trace"]


def trace(
    url: Annotated[str, typer.Argument(help="Dataset: path or URL of a directory or file.", metavar="URL")],
    batch_size: Annotated[int, typer.Option("--batch-size", "-b", help="Rows per batch on each rank.")],
    step: Annotated[int | None, typer.Option("--step", help="Step to show, from 0, counted over all epochs.")] = None,
    epoch: Annotated[int | None, typer.Option("--epoch", help="Count --step from the start of this epoch.")] = None,
    ranks: Annotated[int, typer.Option("--ranks", "-r", help="Number of ranks.")] = 1,
    rank: Annotated[int | None, typer.Option("--rank", help="Show only this rank, from 0.")] = None,
    columns: Annotated[list[str] | None, typer.Option(help="Column name or regular expression; repeatable.")] = None,
    images: Annotated[
        Path | None, typer.Option("--images", metavar="DIR", help="Write the images of the step to DIR as PNG.")
    ] = None,
    losses: Annotated[
        Path | None, typer.Option("--losses", metavar="FILE", help="Training log: CSV, or TensorBoard events.")
    ] = None,
    loss_column: Annotated[str | None, typer.Option("--loss-column", help="Column or tag of the loss.")] = None,
    first_step: Annotated[int, typer.Option("--first-step", help="Number of the first step in the log.")] = 0,
    label: Annotated[str | None, typer.Option("--label", help="Column whose values are ranked by spikes.")] = None,
    top: Annotated[
        int,
        typer.Option(
            "--top", min=1, help="Number of rows, files and labels in the rankings; also of rows in --exclude-out."
        ),
    ] = 20,
    exclude_out: Annotated[
        Path | None,
        typer.Option(
            "--exclude-out", metavar="FILE", help="Write the ranked rows as JSON, for exclude_rows= of make_reader."
        ),
    ] = None,
    shuffle_rows: Annotated[bool, typer.Option("--shuffle-rows", help="Shuffle rows, as in training.")] = False,
    seed: Annotated[int | None, typer.Option("--seed", help="Same seed as the training reader.")] = None,
    last_batch: Annotated[
        str, typer.Option("--last-batch", help="Last batch of an epoch: even, drop, pad or wrap.")
    ] = "even",
    order: Annotated[
        str, typer.Option(metavar="JSON", help='Other order options: {"shuffle_row_groups": false}.')
    ] = "{}",
    filters: Annotated[
        str | None, typer.Option(metavar="JSON", help='Same filters as the training reader: [["day", ">=", 3]].')
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    storage_options: StorageOptions = "{}",
    debug: Debug = False,
) -> None:
    """Show the rows of a training step, or rank the rows, files and labels that occur in the loss spikes of a log.

    The rows are computed from the options of the training reader. Only --columns, --images and --label read data.
    """
    with errors_in_one_line(debug=debug):
        from petastore.dataset import open_dataset
        from petastore.distributed import Shard
        from petastore.plan import LastBatch
        from petastore.selecting.filter import select_rows

        if step is None and losses is None:
            raise InvalidArgumentError(
                "--step or --losses must be given, got neither. Pass the number of a step, or the file with the losses"
            )
        if seed is None and ranks == 1:
            raise InvalidArgumentError("--seed must be given, got none. Pass the seed of the training reader")
        dataset = open_dataset(url, storage_options=json_options(storage_options))
        planned = dataset.plan(
            seed=seed,
            shuffle_rows=shuffle_rows,
            shard=Shard(0, ranks),
            last_batch=LastBatch.parse(last_batch),
            selection=select_rows(dataset, filters=json_filters(filters)),
            **_order_options(order),
        )
        facts: dict[str, object] = {}
        if step is not None:
            facts |= _step(dataset, planned, step, batch_size, epoch, rank, columns, images, as_json=as_json)
        if losses is not None:
            from petastore.tracing import rank_spikes, read_losses

            log = read_losses(losses, column=loss_column, first_step=first_step)
            ranking = rank_spikes(planned, log, batch_size=batch_size, dataset=dataset, label=label)
            facts |= ranking.as_dict(top)
            if not as_json:
                _show_ranking(ranking, Console(), top)
            if exclude_out is not None:
                _write(exclude_out, json.dumps(ranking.exclude_rows(top), indent=1))
        if as_json:
            print_json(facts)


def _order_options(text: str) -> dict[str, Any]:
    """Parse and check the JSON object after `--order`."""
    names = ("shuffle_row_groups", "shuffle_buffer_bytes", "interleave", "shuffle_block_rows", "reshuffle_each_epoch")
    options = json_options(text, option="--order", example='{"interleave": 12}')
    for name in options:
        if name not in names:
            raise InvalidArgumentError(f"--order must have only the options {', '.join(names)}, got {name!r}")
    return options


def _step(
    dataset: Dataset,
    planned: Plan,
    step: int,
    batch_size: int,
    epoch: int | None,
    rank: int | None,
    columns: list[str] | None,
    images: Path | None,
    *,
    as_json: bool,
) -> dict[str, object]:
    """Print the rows of a training step, or return them as a dict of JSON values.

    Args:
        dataset: Dataset of the rows.
        planned: Plan of the training run.
        step: Number of the step, from 0.
        batch_size: Rows per batch on each rank.
        epoch: Epoch from whose start steps are counted; None counts over all epochs.
        rank: Rank whose rows are shown; None shows all ranks.
        columns: Names or regular expressions of the columns to show. None shows no columns, or the images if they are
            saved.
        images: Directory to which images are written as PNG; None writes none.
        as_json: Whether to return the rows instead of printing them. Otherwise the returned dict is empty.
    """
    from petastore.plan import Cursor

    after = None if epoch is None else Cursor.of_epoch(epoch)
    rows = planned.rows_of_step(step, batch_size=batch_size, rank=rank, after=after)
    if columns or images is None:
        chosen = dataset.fields_of(columns) if columns else ()
    else:
        chosen = tuple(field for field in dataset.schema if holds_images(field))
    shown = _place_fields(chosen, ranks=planned.request.shard.count > 1)
    saved = None if images is None else SavedImages(images, chosen, len(rows))
    found = _rows_of(rows, dataset, chosen)
    found = found if saved is None else saved.saving(found)
    console = Console(stderr=as_json)
    facts: dict[str, object] = {}
    if as_json:
        facts = _step_facts(rows, list(rows_as_json(shown, found, saved, images=True)))
    else:
        render_rows(shown, found, console, images=True)
        print_line(repr(rows).removeprefix("StepRows(").removesuffix(")"), console=console)
    if saved is not None:
        print_line(saved.in_words, console=console)
    return facts


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise InvalidArgumentError(f"--exclude-out must be a writable file, got {path}: {problem}") from None


_PLACE_NAMES = ("source_file", "source_row_group", "source_row")
"""Columns that identify a row, as `provenance=True` names them."""


def _place_fields(fields: Sequence[UnischemaField], *, ranks: bool) -> list[UnischemaField]:
    """Return the fields that are shown for each row of a step.

    The fields are the rank (if `ranks` is True), the file, the row group, the row number, and the chosen columns.
    """
    rank = [UnischemaField("rank", "int64")] if ranks and all(field.name != "rank" for field in fields) else []
    places = [UnischemaField(name, dtype) for name, dtype in zip(_PLACE_NAMES, ("str", "int32", "int64"), strict=True)]
    return [*rank, *places, *fields]


def _rows_of(rows: StepRows, dataset: Dataset, fields: Sequence[UnischemaField]) -> Iterator[dict[str, Any]]:
    """Yield each row of a step as a dict: rank, place and the chosen columns.

    The place is file, row group and row. Data is read only for the chosen columns.
    """
    columns: dict[str, NDArray[Any]] = {"rank": rows.ranks}
    columns |= dict(zip(_PLACE_NAMES, (rows.files, rows.row_groups, rows.rows), strict=True))
    if fields:
        from petastore.readers.random_access import RandomAccess

        columns |= RandomAccess(dataset, fields, provenance=True).take(rows.numbers)
    for number in range(len(rows)):
        row = {name: column[number] for name, column in columns.items()}
        yield {name: None if value is np.ma.masked else value for name, value in row.items()}


def _step_facts(rows: StepRows, lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a step and its rows as a dict of JSON values.

    Args:
        rows: Rows of the step.
        lines: One dict of JSON values for each row. Repeats of `last_batch="pad"` also get `"valid": False`.
    """
    valid = [
        {**line, "valid": False} if not is_valid else line for line, is_valid in zip(lines, rows.valid, strict=True)
    ]
    return {"step": rows.step, "epoch": rows.epoch, "step_of_epoch": rows.step_of_epoch, "rows": valid}


def _show_ranking(ranking: SpikeRanking, console: Console, most: int) -> None:
    """Print the spikes, and the first rows, files and labels of each ranking.

    Args:
        ranking: Spikes and rankings.
        console: Console to print on.
        most: Maximum number of lines of each table.
    """
    spikes = ranking.spikes
    header = ["file", "row group", "row"] if spikes.rows else ["step"] if spikes.ranks is None else ["step", "rank"]
    names: list[tuple[Any, ...]] = list(
        spikes.rows or zip(*(part.tolist() for part in (spikes.steps, spikes.ranks) if part is not None), strict=True)
    )
    order = np.argsort(-ranking.spike_scores, kind="stable")[:most].tolist()
    lines = [(*names[at], f"{spikes.losses[at]:.4g}", f"{ranking.spike_scores[at]:.1f}") for at in order]
    _print(counted(len(names), "spike"), [*header, "loss", "score"], lines, console)
    _print("rows in spikes", ["file", "row group", "row", *_COUNTS], _lines(ranking.rows, most), console)
    _print("files in spikes", ["file", *_COUNTS], _lines(ranking.files, most), console)
    if ranking.labels is not None:
        _print("labels in spikes", ["label", *_COUNTS], _lines(ranking.labels, most), console)


_COUNTS = ("in spikes", "of", "expected", "score")


def _lines(ranked: Ranked, most: int) -> list[tuple[Any, ...]]:
    return [
        (*(each["item"] if isinstance(each["item"], list) else [each["item"]]),
         each["in_spikes"], each["total"], f"{each['expected']:.1f}", f"{each['score']:.1f}")
        for each in ranked.as_dicts(most)
    ]  # fmt: skip


def _print(title: str, header: Sequence[str], lines: Sequence[tuple[Any, ...]], console: Console) -> None:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in header:
        table.add_column(name, justify="left" if name in ("file", "label") else "right", overflow="fold")
    for line in lines:
        table.add_row(*(printable(f"{value:,}" if isinstance(value, int) else str(value)) for value in line))
    console.print(table)
    console.print()
