"""Text output of `petastore inspect` and `petastore throughput`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.filesize import decimal as people_bytes
from rich.table import Table
from rich.text import Text

from petastore.cli.inspect import DatasetFacts, FieldFacts, IndexFacts, PartitionFacts, Spread
from petastore.cli.terminal import facts_table, print_line
from petastore.decoding.display import printable
from petastore.plan.report.explanation import counted

if TYPE_CHECKING:
    from petastore.tuning import Throughput

__all__ = ["render_facts", "throughput_line", "throughput_table"]

_BARS = "▁▂▃▄▅▆▇█"
# Parquet's `created_by` ends in the 40 digits of a commit, which are not shown.
_BUILD = re.compile(r" \(build [0-9a-f]*\)$")
_LINES_BESIDE_THE_FIELDS = 16
_FEWEST_FIELDS = 4


def render_facts(facts: DatasetFacts, console: Console, *, every_field: bool = False) -> None:
    """Print the facts about a dataset.

    Args:
        facts: Facts to print.
        console: Console to print on; its height decides how many fields are listed.
        every_field: Whether to list all fields, even if they do not fit on one screen.
    """
    differing = len(facts.differences) if every_field else _FEWEST_FIELDS
    more = len(facts.indexes) + min(len(facts.differences), differing + 1)
    room = max(_FEWEST_FIELDS, console.height - _LINES_BESIDE_THE_FIELDS - more)
    shown = facts.fields if every_field or len(facts.fields) <= room else facts.fields[: room - 1]
    console.print(Text.assemble(("dataset  ", "dim"), (printable(facts.url), "bold")), soft_wrap=True)
    console.print(Text.assemble(("schema   ", "dim"), _schema_words(facts)))
    console.print()
    console.print(_fields_table(shown, hidden=len(facts.fields) - len(shown)))
    console.print()
    console.print(_sizes_table(facts, differing=differing))
    print_line(_closing_line(facts), console=console)


def _schema_words(facts: DatasetFacts) -> str:
    number = counted(len(facts.fields), "field")
    if facts.schema is None:
        return f"inferred from plain Parquet, {number}"
    return f"{printable(facts.schema)}, {number}"


def _fields_table(fields: Sequence[FieldFacts], *, hidden: int) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        show_edge=False,
        header_style="dim",
        caption_justify="left",
    )
    for name in ("field", "dtype", "shape", "codec", "null", "stored as"):
        table.add_column(name, overflow="fold", style="bold" if name == "field" else "")
    for field in fields:
        table.add_row(
            Text(printable(field.name)),
            Text(field.dtype),
            _shape_text(field.shape),
            Text(printable(field.codec_text or "–")),
            "yes" if field.nullable else "no",
            Text(printable(_stored_words(field))),
        )
    if hidden:
        table.caption = f"… and {counted(hidden, 'more field')}: --all lists them"
    return table


def _stored_words(field: FieldFacts) -> str:
    if field.stored is None:
        return "the path"
    # Pages of an OPTIONAL column decode more slowly, so such a column is marked if its field is not nullable.
    return f"{field.stored}, optional" if field.stored_nullable and not field.nullable else field.stored


def _sizes_table(facts: DatasetFacts, *, differing: int) -> Table:
    table = facts_table()
    table.add_row(
        "rows", f"{facts.rows:,} in {counted(facts.row_groups, 'row group')} of {counted(facts.files, 'file')}"
    )
    table.add_row("stored", f"{people_bytes(facts.stored_bytes)}; {people_bytes(facts.page_bytes)} once decompressed")
    table.add_row("decoded", Text(printable(_decoded_words(facts))))
    table.add_row("row group", _spread_words(facts.rows_of_row_groups, facts.bytes_of_row_groups))
    if facts.histogram:
        table.add_row("", f"{_bars(facts.histogram)}  row groups, smallest to largest")
    readable = {field.name for field in facts.fields}
    for difference in facts.differences[:differing]:
        words = f"{difference.name}: {difference}{'' if difference.name in readable else '; not readable'}"
        table.add_row("differs", Text(printable(words)))
    if len(facts.differences) > differing:
        table.add_row("", f"… and {counted(len(facts.differences) - differing, 'more column')}: --all lists them")
    for partition in facts.partitions:
        table.add_row("partition", Text(printable(_partition_words(partition))))
    for index in facts.indexes:
        table.add_row("index", Text(printable(_index_words(index))))
    table.add_row("writer", Text(printable(_BUILD.sub("", facts.writer))))
    return table


def _decoded_words(facts: DatasetFacts) -> str:
    size = people_bytes(facts.decoded_bytes)
    varying = facts.fields_of_varying_size
    if not varying:
        return f"{size} as arrays"
    if len(varying) == len(facts.fields):
        return "not known in advance: rows differ in size"
    *others, last = varying
    named = f"{', '.join(others)} and {last}" if others else last
    if len(varying) > _FEWEST_FIELDS:
        named = counted(len(varying), "field")
    return f"{size} as arrays, without {named}, whose sizes vary"


def _spread_words(rows: Spread, stored: Spread) -> str:
    if rows.smallest == rows.largest:
        return f"{rows.smallest:,} rows each, {people_bytes(stored.median)} at the median"
    return (
        f"{rows.smallest:,} / {rows.median:,} / {rows.largest:,} rows, {people_bytes(stored.smallest)} / "
        f"{people_bytes(stored.median)} / {people_bytes(stored.largest)} (least / median / most)"
    )


def _bars(counts: Sequence[int]) -> str:
    """Return one character per bucket of a histogram, from empty to a full bar."""
    most = max(counts)
    return "".join(" " if not count else _BARS[(count * (len(_BARS) - 1)) // most] for count in counts)


def _partition_words(partition: PartitionFacts) -> str:
    first, last = ("null" if value is None else value for value in (partition.values[0], partition.values[-1]))
    span = first if len(partition.values) == 1 else f"{first} … {last}"
    return f"{partition.name}: {counted(len(partition.values), 'value')}, {span}"


def _index_words(index: IndexFacts) -> str:
    if index.problem is not None:
        return f"{index.name}: not usable. {index.problem}"
    values = "" if index.values is None else f", {counted(index.values, 'value')}"
    return f"{index.name}: of {', '.join(index.fields)}{values}"


def _closing_line(facts: DatasetFacts) -> str:
    name = facts.url.rstrip("/").rsplit("/", 1)[-1]
    return (
        f"{name}: {counted(facts.rows, 'row')}, {counted(len(facts.fields), 'field')}, "
        f"{counted(facts.row_groups, 'row group')}, {people_bytes(facts.stored_bytes)}"
    )


def _shape_text(shape: tuple[int | None, ...]) -> str:
    return "×".join("?" if size is None else f"{size:,}" for size in shape) or "–"


def throughput_table(found: Throughput) -> Table:
    """Return the measurements as a table, with one line for each."""
    table = facts_table()
    spread = f"{_rate(found.slowest)} / {_rate(found.median)} / {_rate(found.fastest)}"
    table.add_row("rate", f"{_rate(found.rows_per_second)} rows/s")
    table.add_row("parts", f"{spread} rows/s (least / median / most)")
    table.add_row("bytes", f"{people_bytes(round(found.bytes_per_second))}/s, {found.bytes_per_row:,.0f} bytes a row")
    table.add_row("measured", f"{counted(found.rows, 'row')} in {found.seconds:.3f} s")
    table.add_row("first", f"{found.first_seconds:.3f} s from opening the dataset to the first row or batch")
    table.add_row("CPU", f"{found.cpu:.0f} % of one")
    table.add_row("memory", f"{people_bytes(found.memory_info.rss)} at most")
    return table


def throughput_line(found: Throughput) -> str:
    """Return the most important measurements in one line: rates, CPU and memory."""
    per_second, peak = f"{people_bytes(round(found.bytes_per_second))}/s", people_bytes(found.memory_info.rss)
    return f"{_rate(found.rows_per_second)} rows/s, {per_second}, {found.cpu:.0f} % CPU, {peak} of memory"


def _rate(rows: float) -> str:
    return f"{rows:,.0f}" if rows >= 100 else f"{rows:.3g}"
