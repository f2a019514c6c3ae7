"""HTML tables of values for notebooks. All text from datasets is escaped."""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterable, Sequence

__all__ = ["HtmlImage", "html_table"]

_MOST_ROWS = 50


class HtmlImage(str):
    """Data URI of an image; `html_table` shows the image instead of the text."""

    __slots__ = ()


def html_table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]], *, count: int) -> str:
    """Return a table as HTML; of a long table, only the first 50 rows are shown.

    Args:
        title: Title above the table.
        header: Names of the columns; empty for a table without a header.
        rows: Rows, each with the values of its columns; only the rows that are shown are read.
        count: Total number of rows.

    Example:
        >>> html_table("two", ["name"], [["<a>"], ["b"]], count=2)
        '<table><caption>two</caption><tr><th>name</th></tr><tr><td>&lt;a&gt;</td></tr><tr><td>b</td></tr></table>'
    """
    lines = [_line("th", header)] if header else []
    lines += [_line("td", row) for row in itertools.islice(rows, _MOST_ROWS)]
    if count > _MOST_ROWS:
        lines.append(_line("td", [f"… and {count - _MOST_ROWS:,} more"]))
    return f"<table><caption>{html.escape(title)}</caption>{''.join(lines)}</table>"


def _line(cell: str, values: Iterable[object]) -> str:
    return f"<tr>{''.join(f'<{cell}>{_shown(value)}</{cell}>' for value in values)}</tr>"


def _shown(value: object) -> str:
    text = html.escape(str(value))
    return f'<img src="{text}">' if isinstance(value, HtmlImage) else text
