"""Tests of the documentation site: API reference, links to the source, search terms and screenshots."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import griffe
import pytest

import petastore
import petastore.errors
import petastore.spark

DOCUMENTED = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)
DOCSTRING = """Reads.

Args:
    url: Where.
    old: Retired.
    older: Retired: `url` says it, in
        two lines.
    estimate: Accepted, of no effect: bytes are counted.

    seed: Any.

Returns:
    Rows.
"""
FOLDED = """Reads.

Args:
    url: Where.

    seed: Any.

??? note "Retired parameters: accepted, and of no effect"

    * `old`.
    * `older`: `url` says it, in two lines.
    * `estimate`: bytes are counted.

Returns:
    Rows.
"""


@pytest.fixture(scope="module")
def documented(repository: Path) -> set[str]:
    """Return the names that the pages of the API reference document."""
    pages = (repository / "docs" / "reference").glob("*.md")
    return {name for page in pages for name in DOCUMENTED.findall(page.read_text(encoding="utf-8"))}


def extension(repository: Path, name: str, *arguments: Any) -> Any:
    """Return an object of one of the site's mkdocs extensions, loaded from its file like mkdocs does."""
    file = repository / "docs" / f"{re.sub('(?<!^)(?=[A-Z])', '_', name).lower()}.py"
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)(*arguments)


def test_public_names_of_petastore_are_in_the_api_reference(documented: set[str]) -> None:
    elsewhere = {*petastore.errors.__all__, *petastore.spark.__all__}  # documented on the pages of these modules
    assert {f"petastore.{name}" for name in set(petastore.__all__) - elsewhere} <= documented


@pytest.fixture(scope="module")
def package(repository: Path) -> griffe.Module:
    """Return the package as the site generator loads it, with links to the source."""
    links = extension(repository, "SourceLinks", "https://code.example/blob/main/")
    loaded = griffe.load("petastore", search_paths=[repository], extensions=griffe.Extensions(links))
    assert isinstance(loaded, griffe.Module)
    return loaded


def test_reference_names_exist_in_the_package(documented: set[str], package: griffe.Module) -> None:
    missing = []
    for name in documented:
        try:
            package[name.removeprefix("petastore.")]
        except KeyError:
            missing.append(name)
    assert len(documented) > 50
    assert missing == []


def test_retired_parameters_are_collapsed_in_the_api_reference(repository: Path) -> None:
    function = griffe.Function("read")
    function.docstring = griffe.Docstring(DOCSTRING)
    extension(repository, "RetiredParameters").on_object(obj=function)
    assert function.docstring.value == FOLDED.rstrip()


def test_docstring_section_with_only_retired_parameters_is_collapsed() -> None:
    function = griffe.Function("read")
    function.docstring = griffe.Docstring("Reads.\n\nArgs:\n    url: Where.\n\nArgs: Deprecated\n    old: Retired.\n")
    extension(Path(__file__).parents[1], "RetiredParameters").on_object(obj=function)
    note = '??? note "Retired parameters: accepted, and of no effect"'
    assert function.docstring.value == f"Reads.\n\nArgs:\n    url: Where.\n\n{note}\n\n    * `old`."


def test_docstring_with_collapsed_parameters_is_unchanged_by_a_second_run(repository: Path) -> None:
    function = griffe.Function("read")
    function.docstring = griffe.Docstring(FOLDED)
    extension(repository, "RetiredParameters").on_object(obj=function)
    assert function.docstring.value == FOLDED.rstrip()


def test_reference_names_link_to_their_source_lines(repository: Path, package: griffe.Module) -> None:
    link, first = package["make_reader"].source_link.split("#L")
    assert link == "https://code.example/blob/main/petastore/front.py"
    begin, _, end = first.partition("-L")
    lines = (repository / "petastore" / "front.py").read_text(encoding="utf-8").splitlines()
    assert "def make_reader(" in lines[int(begin) - 1 : int(end)]


def test_repository_link_makes_no_requests(repository: Path) -> None:
    """The theme's default repository link requests the number of stars from GitHub."""
    partial = (repository / "docs" / "theme" / "partials" / "source.html").read_text(encoding="utf-8")
    assert "data-md-component" not in partial.partition("-#}")[2]


def test_site_screenshot_without_a_browser_gives_advice(repository: Path, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "docs/look.py"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": str(tmp_path), "NO_MKDOCS_2_WARNING": "1"},
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "there is no Chromium on PATH" in ran.stderr
    assert "apt install chromium" in ran.stderr


def test_site_screenshot_of_an_unknown_page_lists_pages(repository: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "docs/look.py", "home", "nosuch"], cwd=repository, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2
    assert "there is no page nosuch; there are home, readme, " in ran.stderr


SEARCHED = {
    "deterministic": 5,
    "reproducible": 5,
    "deadlock": 5,
    "zero-copy": 5,
    "bottleneck": 5,
    "DDP": 5,
    "FSDP": 5,
    "out of memory": 4,
    "quickstart": 5,
    "FAQ": 5,
}
"""Search terms of users, and the least number of pages on which each must occur."""


@pytest.mark.parametrize("word", SEARCHED)
def test_site_search_finds_words(repository: Path, word: str) -> None:
    pages = (repository / "docs").rglob("*.md")
    found = [page for page in pages if re.search(rf"\b{word}\b", page.read_text(encoding="utf-8"), re.IGNORECASE)]
    assert len(found) >= SEARCHED[word]


def test_name_index_has_each_documented_name(repository: Path, documented: set[str], package: griffe.Module) -> None:
    index = (repository / "docs" / "reference" / "names.md").read_text(encoding="utf-8")
    names = set()
    for name in documented:
        item = package[name.removeprefix("petastore.")]
        item = item.final_target if item.is_alias else item
        exported = [str(each) for each in item.exports or []] if item.is_module else []
        names |= {f"{name}.{each}" for each in exported} if item.is_module else {name}
    linked = set(re.findall(r"\.md#([\w.]+)\)", index))
    left_out = {
        "petastore.spark.caching.leases",
        "petastore.codecs.registry.register",
        "petastore.cli.inspect.dataset_facts",
        # laws.md lists the members of its modules, except these two.
        "petastore.testing.codec_laws.empty_column",
        "petastore.testing.training.numbers_of",
    }
    missing = {name for name in names - linked if not name.startswith(tuple(left_out))}
    assert missing == set()
