"""What the site is made of: public names, folded parameters, links to the source, and nothing of other hosts."""

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
    """What the pages of the reference name."""
    pages = (repository / "docs" / "reference").glob("*.md")
    return {name for page in pages for name in DOCUMENTED.findall(page.read_text(encoding="utf-8"))}


def extension(repository: Path, name: str, *arguments: Any) -> Any:
    """One of the site's own extensions, as mkdocs loads it: from its file."""
    file = repository / "docs" / f"{re.sub('(?<!^)(?=[A-Z])', '_', name).lower()}.py"
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)(*arguments)


def test_each_name_of_the_front_door_is_in_the_reference_by_that_name(documented: set[str]) -> None:
    elsewhere = {*petastore.errors.__all__, *petastore.spark.__all__}  # on the pages of these modules
    assert {f"petastore.{name}" for name in set(petastore.__all__) - elsewhere} <= documented


@pytest.fixture(scope="module")
def package(repository: Path) -> griffe.Module:
    """The package as the site's generator sees it, with links to the source."""
    links = extension(repository, "SourceLinks", "https://code.example/blob/main/")
    loaded = griffe.load("petastore", search_paths=[repository], extensions=griffe.Extensions(links))
    assert isinstance(loaded, griffe.Module)
    return loaded


def test_names_of_the_reference_are_in_the_package(documented: set[str], package: griffe.Module) -> None:
    missing = []
    for name in documented:
        try:
            package[name.removeprefix("petastore.")]
        except KeyError:
            missing.append(name)
    assert len(documented) > 50
    assert missing == []


def test_retired_parameters_are_folded_away(repository: Path) -> None:
    function = griffe.Function("read")
    function.docstring = griffe.Docstring(DOCSTRING)
    extension(repository, "RetiredParameters").on_object(obj=function)
    assert function.docstring.value == FOLDED.rstrip()


def test_parameters_that_mean_something_stay_where_they_are(repository: Path) -> None:
    function = griffe.Function("read")
    function.docstring = griffe.Docstring(FOLDED)
    extension(repository, "RetiredParameters").on_object(obj=function)
    assert function.docstring.value == FOLDED.rstrip()


def test_a_name_links_to_its_lines(repository: Path, package: griffe.Module) -> None:
    link, first = package["make_reader"].source_link.split("#L")
    assert link == "https://code.example/blob/main/petastore/front.py"
    begin, _, end = first.partition("-L")
    lines = (repository / "petastore" / "front.py").read_text(encoding="utf-8").splitlines()
    assert "def make_reader(" in lines[int(begin) - 1 : int(end)]


def test_the_link_to_the_repository_asks_it_for_nothing(repository: Path) -> None:
    """The theme's own has a component that asks GitHub for stars."""
    partial = (repository / "docs" / "theme" / "partials" / "source.html").read_text(encoding="utf-8")
    assert "data-md-component" not in partial.partition("-#}")[2]


def test_looking_without_a_browser_says_how_to_get_one(repository: Path, tmp_path: Path) -> None:
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


def test_looking_at_a_page_that_there_is_not_names_those_that_there_are(repository: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "docs/look.py", "home", "nosuch"], cwd=repository, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2
    assert "there is no page nosuch; there are home, readme, " in ran.stderr
