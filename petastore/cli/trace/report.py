"""Rows of a step and ranked loss spikes, as text and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.table import Table

from petastore.cli.terminal import counted
from petastore.dataset import Dataset
from petastore.decoding.display import printable
from petastore.plan.report.step_rows import StepRows
from petastore.readers.random_access import RandomAccess
from petastore.schema.field import UnischemaField
from petastore.tracing import Ranked, SpikeRanking

__all__ = ["place_fields", "rows_of", "show_ranking", "step_facts"]

PLACE_NAMES = ("source_file", "source_row_group", "source_row")
"""Columns that identify a row, as `provenance=True` names them."""


def place_fields(fields: Sequence[UnischemaField], *, ranks: bool) -> list[UnischemaField]:
    """Return the fields that are shown of each row: its rank and its place, then the chosen columns."""
    rank = [UnischemaField("rank", "int64")] if ranks and all(field.name != "rank" for field in fields) else []
    places = [UnischemaField(name, dtype) for name, dtype in zip(PLACE_NAMES, ("str", "int32", "int64"), strict=True)]
    return [*rank, *places, *fields]


def rows_of(rows: StepRows, dataset: Dataset, fields: Sequence[UnischemaField]) -> Iterator[dict[str, Any]]:
    """Yield the rank, the place and the chosen columns of each row; reads only these columns, if there are any."""
    columns: dict[str, NDArray[Any]] = {"rank": rows.ranks}
    columns |= dict(zip(PLACE_NAMES, (rows.files, rows.row_groups, rows.rows), strict=True))
    if fields:
        columns |= RandomAccess(dataset, fields, provenance=True).take(rows.numbers)
    for number in range(len(rows)):
        row = {name: column[number] for name, column in columns.items()}
        yield {name: None if value is np.ma.masked else value for name, value in row.items()}


def step_facts(rows: StepRows, lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a step and its rows as JSON values."""
    valid = [
        {**line, "valid": False} if not is_valid else line for line, is_valid in zip(lines, rows.valid, strict=True)
    ]
    return {"step": rows.step, "epoch": rows.epoch, "step_of_epoch": rows.step_of_epoch, "rows": valid}


def show_ranking(ranking: SpikeRanking, console: Console, most: int) -> None:
    """Print the spikes, and the first rows, files and labels of each ranking."""
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
