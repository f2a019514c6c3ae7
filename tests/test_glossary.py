"""The glossary defines each term once, in alphabetical order, in one sentence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROW = re.compile(r"^\| (?P<term>[^|]+?) \| (?P<meaning>[^|]+?) \|$", re.MULTILINE)


@pytest.fixture
def tables(repository: Path) -> list[list[tuple[str, str]]]:
    """The rows of both tables: terms of users, and of the implementation."""
    page = (repository / "docs/reference/glossary.md").read_text(encoding="utf-8")
    sections = page.split("\n## ")[1:]
    tables = [[(row["term"], row["meaning"]) for row in ROW.finditer(section)][1:] for section in sections]
    assert sum(map(len, tables)) + 2 == sum(line.startswith("| ") for line in page.splitlines())
    return tables


def test_glossary_terms_are_unique_and_sorted(tables: list[list[tuple[str, str]]]) -> None:
    users, internals = ([term for term, _ in table] for table in tables)
    assert 15 <= len(users) <= 25
    assert users == sorted(users)
    assert internals == sorted(internals)
    assert not set(users) & set(internals)


def test_glossary_meanings_are_sentences(tables: list[list[tuple[str, str]]]) -> None:
    rows = [row for table in tables for row in table]
    assert {term: meaning for term, meaning in rows if not re.match(r"[A-Z`].*\.$", meaning)} == {}
