"""Tests of escaped control characters, so that data cannot send sequences to a terminal."""

from __future__ import annotations

import pytest

from petastore.decoding.display import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain [bold]text[/bold]", "plain [bold]text[/bold]"),
        ("título 深い 🐦", "título 深い 🐦"),
        ("no\u00a0break\u3000wide", "no\u00a0break\u3000wide"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x9b31m\x7f", r"\x9b31m\x7f"),
        ("a\r\nb\tc", r"a\r\nb\tc"),
        ("user\u202etxt.exe", r"user\u202etxt.exe"),
        ("half \ud800", r"half \ud800"),
    ],
)
def test_control_characters_are_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_escaped_text_has_no_terminal_sequences() -> None:
    every = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0)]))
    assert printable(every).isprintable()
