"""The glossary has each word once, in the order of the alphabet, and says what it means in a sentence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

WORD = re.compile(r"^\| (?P<word>[^|]+?) \| (?P<meaning>[^|]+?) \|$", re.MULTILINE)


@pytest.fixture
def words(repository: Path) -> dict[str, str]:
    """Word to meaning; a word that stands there twice fails."""
    page = (repository / "docs/reference/glossary.md").read_text(encoding="utf-8")
    rows = [(match["word"], match["meaning"]) for match in WORD.finditer(page)][1:]  # without the head of the table
    assert len(rows) == sum(line.startswith("| ") for line in page.splitlines()) - 1, "a line is no row of the table"
    found = [word for word, _ in rows]
    assert sorted({word for word in found if found.count(word) > 1}) == []
    return dict(rows)


def test_each_word_stands_there_once_and_in_order(words: dict[str, str]) -> None:
    assert len(words) > 50
    assert list(words) == sorted(words)


def test_each_meaning_is_a_sentence(words: dict[str, str]) -> None:
    assert {word: meaning for word, meaning in words.items() if not re.match(r"[A-Z`].*\.$", meaning)} == {}


def test_words_of_rooms_and_modules_are_there(words: dict[str, str]) -> None:
    """Those that had several meanings once."""
    assert {"layout", "line", "part", "run", "share", "source", "turn"} <= set(words)
