"""Tests of text on the terminal: escaped control characters, and options in the messages of errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from petastore import write_dataset
from petastore.decoding.display import printable
from tests.cli.command import petastore


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["head", "--columns", "wrod"], r"--columns must match fields of \S+ \('batch_size', 'word'\), got 'wrod'\."),
        (["verify", "--sample", "0"], "--sample must be an int of at least 1, got 0$"),
        (["plan", "-b", "2", "--rank", "2", "--ranks", "2"], "--rank must be from 0 to 1 with --ranks=2, got 2$"),
        (["plan", "-b", "2", "--last-batch", "evn"], "--last-batch must be one of 'even', .* got 'evn'$"),
        (["throughput", "--workers=-1"], "--workers must be an int of at least 1, got -1$"),
        (["throughput", "--measure", "0"], "--measure must be an int of at least 1, got 0$"),
        (["trace", "-b", "2", "--seed", "1", "--step=-1"], "--step must be an int of at least 0, got -1$"),
        (["cache", "warm", "--interleave", "0"], "--interleave must be an int of at least 1, got 0$"),
        (["cache", "warm", "--shard", "3/2"], "--shard must have the form I/N, .* got '3/2'$"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_command_errors_name_options_instead_of_parameters(arguments: list[str], message: str, tmp_path: Path) -> None:
    write_dataset(tmp_path / "words", {"batch_size": [1, 2], "word": ["a", "b"]})
    ran = petastore(*arguments, tmp_path / "words")
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert re.match(f"petastore: {message}", ran.stderr.strip()), ran.stderr


def test_escaped_text_has_no_terminal_sequences() -> None:
    every = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0)]))
    assert printable(every).isprintable()
