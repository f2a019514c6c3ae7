"""Arguments and output of `petastore trace`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from petastore.cli.terminal import (
    Debug,
    StorageOptions,
    errors_in_one_line,
    json_filters,
    json_options,
    print_json,
    print_line,
)
from petastore.errors import InvalidArgumentError

if TYPE_CHECKING:
    from petastore.dataset import Dataset
    from petastore.plan import Plan
    from petastore.tracing import SpikeRanking

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
    top: Annotated[int, typer.Option("--top", min=1, help="Rows, files and labels to rank.")] = 20,
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
            ranking = _ranking(dataset, planned, losses, loss_column, first_step, batch_size, label)
            facts |= ranking.as_dict(top)
            if not as_json:
                from petastore.cli.trace.report import show_ranking

                show_ranking(ranking, Console(), top)
            if exclude_out is not None:
                _write(exclude_out, json.dumps(ranking.exclude_rows(top), indent=1))
        if as_json:
            print_json(facts)


def _order_options(text: str) -> dict[str, Any]:
    """Return the options after `--order`."""
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
    """Print the rows of a step, or return them as JSON values; save their images."""
    from petastore.cli.head import render_rows, rows_as_json
    from petastore.cli.pictures import SavedImages
    from petastore.cli.trace.report import place_fields, rows_of, step_facts
    from petastore.decoding.display import holds_images
    from petastore.plan import Cursor

    after = None if epoch is None else Cursor.of_epoch(epoch)
    rows = planned.rows_of_step(step, batch_size=batch_size, rank=rank, after=after)
    if columns or images is None:
        chosen = dataset.fields_of(columns) if columns else ()
    else:
        chosen = tuple(field for field in dataset.schema if holds_images(field))
    shown = place_fields(chosen, ranks=planned.request.shard.count > 1)
    saved = None if images is None else SavedImages(images, chosen, len(rows))
    found = rows_of(rows, dataset, chosen)
    found = found if saved is None else saved.saving(found)
    console = Console(stderr=as_json)
    facts: dict[str, object] = {}
    if as_json:
        facts = step_facts(rows, list(rows_as_json(shown, found, saved, images=True)))
    else:
        render_rows(shown, found, console, images=True)
        print_line(repr(rows).removeprefix("StepRows(").removesuffix(")"), console=console)
    if saved is not None:
        print_line(saved.in_words, console=console)
    return facts


def _ranking(
    dataset: Dataset,
    planned: Plan,
    losses: Path,
    column: str | None,
    first_step: int,
    batch_size: int,
    label: str | None,
) -> SpikeRanking:
    from petastore.tracing import rank_spikes, read_losses

    log = read_losses(losses, column=column, first_step=first_step)
    return rank_spikes(planned, log, batch_size=batch_size, dataset=dataset, label=label)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise InvalidArgumentError(f"--exclude-out must be a writable file, got {path}: {problem}") from None
