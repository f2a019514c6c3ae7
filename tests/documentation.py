"""Documentation pages and their Python blocks, for the tests that run them."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

__all__ = ["PAGES", "ROOT", "blocks_of", "evaluate", "leaves_running", "name_of", "needs_of", "pages_with"]

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_NEEDS = re.compile(r"<!-- needs: (?P<names>[a-z, ]+) -->")
_LEAVES = re.compile(r"<!-- leaves running: (?P<reason>[^>]+) -->")
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    """Return the path of a page in the repository."""
    return page.relative_to(ROOT).as_posix()


def needs_of(page: Path) -> set[str]:
    """Return what a page needs in addition to Python, from its comments: `spark`, `tf`, `server`, `neighbours`."""
    found = _NEEDS.finditer(page.read_text(encoding="utf-8"))
    return {name.strip() for match in found for name in match["names"].split(",")}


def leaves_running(page: Path) -> list[str]:
    """Return the reasons, from its comments, why a page leaves something running."""
    return [match["reason"] for match in _LEAVES.finditer(page.read_text(encoding="utf-8"))]


def pages_with(need: str) -> list[Path]:
    """Return the pages whose comments name this need."""
    return [page for page in PAGES if need in needs_of(page)]


def blocks_of(page: Path) -> list[str]:
    """Return the text of the Python blocks of a page."""
    return _BLOCK.findall(page.read_text(encoding="utf-8"))


def evaluate(page: Path) -> None:
    """Run the Python blocks of a page from top to bottom, in one namespace."""
    sybil = Sybil([PythonCodeBlockParser(doctest_optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)])
    examples = list(sybil.parse(page).examples())
    assert len(examples) >= len(blocks_of(page)), "sybil finds fewer blocks than the page has"
    for example in examples:
        example.evaluate()
