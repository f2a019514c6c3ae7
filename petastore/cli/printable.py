"""Text of datasets as a terminal may be given it: what would steer the terminal is spelled out."""

from __future__ import annotations

import unicodedata

__all__ = ["printable"]


def printable(text: str) -> str:
    r"""The text, in which each character that cannot be seen is written as Python escapes it; blanks stay.

    Cells, names of columns and paths come from whoever wrote a dataset. Escape sequences in them would colour, move or
    rename the terminal, and characters that turn the direction of writing would show another text than there is.

    Example:
        >>> print(printable("one\ntwo \x1b[31mred\x1b[0m"), printable("Zürich 東京"))
        one\ntwo \x1b[31mred\x1b[0m Zürich 東京
    """
    if text.isprintable():
        return text
    return "".join(map(_seen, text))


def _seen(character: str) -> str:
    if character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    return character.encode("unicode_escape").decode()
