"""Tests of the glossary: each term is defined once, in alphabetical order, in one sentence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROW = re.compile(r"^\| (?P<term>[^|]+?) \| (?P<meaning>[^|]+?) \|$", re.MULTILINE)


@pytest.fixture
def definitions(repository: Path) -> list[tuple[str, str]]:
    """Return the rows of the glossary table, without its header."""
    page = (repository / "docs/reference/glossary.md").read_text(encoding="utf-8")
    rows = [(row["term"], row["meaning"]) for row in ROW.finditer(page)][1:]
    assert len(rows) + 1 == sum(line.startswith("| ") for line in page.splitlines())
    return rows


def test_glossary_terms_are_unique_and_sorted(definitions: list[tuple[str, str]]) -> None:
    terms = [term for term, _ in definitions]
    assert 15 <= len(terms) <= 25
    assert terms == sorted(set(terms))


def test_glossary_meanings_are_sentences(definitions: list[tuple[str, str]]) -> None:
    assert {term: meaning for term, meaning in definitions if not re.match(r"[A-Z`].*\.$", meaning)} == {}
