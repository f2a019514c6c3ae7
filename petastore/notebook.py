"""Tables that notebooks show of values: HTML in which whatever comes from a dataset is text."""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterable, Sequence

__all__ = ["html_table"]

_MOST_ROWS = 50


def html_table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]], *, count: int) -> str:
    """A table as HTML, of its first rows where there are many.

    Args:
        title: Over the table.
        header: Names of its columns; none leaves the header away.
        rows: Of each row, what stands in its columns; as many as are shown are taken.
        count: How many rows there are.

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
    return f"<tr>{''.join(f'<{cell}>{html.escape(str(value))}</{cell}>' for value in values)}</tr>"
