"""Draw the output of a command as an SVG picture of a terminal.

`make demo | sed "s,$PWD,~/petastore," | python docs/images/record.py "make demo" demo.svg` draws the README's picture.
"""

from __future__ import annotations

import re
import sys
from html import escape
from pathlib import Path

__all__ = ["picture_of", "text_of"]

INK, GRAY, PAPER, PROMPT = "#d7dde5", "#8b98a9", "#1b2330", "#7ec699"
"""Colors of a dark terminal, which is readable on light and on dark pages."""

LINE, CHARACTER, BORDER = 22, 8.6, 22
"""Pixels of a line, of a character, and around the text."""

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def text_of(recorded: str) -> list[str]:
    """Return the lines that a terminal shows in the end: without colors, and without text that was overwritten."""
    return [_ESCAPES.sub("", line).rpartition("\r")[2].rstrip() for line in recorded.rstrip().split("\n")]


def picture_of(command: str, lines: list[str]) -> str:
    """Return the SVG of a terminal with a command and its output."""
    longest = max(map(len, [f"$ {command}", *lines]))
    width, height = round(longest * CHARACTER + 2 * BORDER), (len(lines) + 1) * LINE + 2 * BORDER
    rows = [(f'<tspan fill="{PROMPT}">$</tspan> {escape(command)}', INK), *((escape(line), GRAY) for line in lines)]
    texts = "\n".join(
        f'<text x="{BORDER}" y="{BORDER + number * LINE + 16}" fill="{color}" xml:space="preserve">{row}</text>'
        for number, (row, color) in enumerate(rows)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, \'DejaVu Sans Mono\', monospace" font-size="14" '
        f'role="img" aria-labelledby="title"><title id="title">Output of {escape(command)} in a terminal</title>\n'
        f'<rect width="{width}" height="{height}" rx="10" fill="{PAPER}"/>\n{texts}\n</svg>\n'
    )


if __name__ == "__main__":
    Path(__file__).with_name(sys.argv[2]).write_text(
        picture_of(sys.argv[1], text_of(sys.stdin.read())), encoding="utf-8"
    )
