"""Which test files run where only the core and small extras are installed: those that import nothing else.

What a file imports is read from its text, so imports inside functions and inside programs that a test runs count, too;
so do those of the files of `tests/` that it imports, and what a module of petastore imports when it is loaded.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

__all__ = ["Selection", "optional_names", "select"]

# About the repository, its pages and its tools rather than about what runs on a Python.
_OTHER = {"benchmarks", "examples", "pythons", "servers", "spark"}
_OTHER_FILES = {
    *("test_conftest.py", "test_docs.py", "test_layout.py", "test_parquet_testing.py", "test_repository.py"),
    *("test_typing.py", "test_wheel.py"),
}
_OURS = {"benchmarks", "examples", "neighbours", "petastore", "tests"}

_ANYWHERE = re.compile(r"^[ \t]*(?:>>> |\.\.\. )?[\"']?(?:import|from) ([\w.]+)(?: import \(?([\w, ]+))?", re.MULTILINE)
_ON_LOADING = re.compile(r"^(?:import|from) ([\w.]+)(?: import \(?([\w, ]+))?", re.MULTILINE)
_OF_THE_TREE = re.compile(r"\brepository / \"petastore")


@dataclasses.dataclass(frozen=True)
class Selection:
    """Files to run, and those that are left out."""

    run: tuple[Path, ...]
    """Files with tests or examples, relative to the tree."""

    left_out: dict[str, int]
    """How many files each package that is missing leaves out, by its name."""


def optional_names(tree: Path) -> set[str]:
    """Top-level names that are not Python's own nor ours: of what is installed here, and of all optional packages."""
    project = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (named,) = [names["forbidden_modules"] for names in contracts if "optional dependency" in names["name"]]
    return ({*importlib.metadata.packages_distributions()} | set(named)) - _OURS


def select(tree: Path, missing: Iterable[str]) -> Selection:
    """The test files and modules of a tree that need none of some packages.

    Args:
        tree: Where `tests` and `petastore` are.
        missing: Top-level names that cannot be imported.
    """
    absent = frozenset(missing)
    run, left_out = [], dict.fromkeys(sorted(absent), 0)
    for path in _candidates(tree):
        needed = _needs(tree, path, _ANYWHERE) & absent
        if not needed:
            run.append(path.relative_to(tree))
        for name in needed:
            left_out[name] += 1
    return Selection(tuple(run), {name: count for name, count in left_out.items() if count})


def _candidates(tree: Path) -> list[Path]:
    tests = [
        path
        for path in sorted((tree / "tests").rglob("test_*.py"))
        if path.relative_to(tree / "tests").parts[0] not in _OTHER | _OTHER_FILES
        and not _OF_THE_TREE.search(path.read_text(encoding="utf-8"))
    ]
    examples = [
        path for path in sorted((tree / "petastore").rglob("*.py")) if ">>> " in path.read_text(encoding="utf-8")
    ]
    return tests + examples


def _needs(tree: Path, path: Path, imports: re.Pattern[str]) -> set[str]:
    """Top-level names that a file imports, itself or by files of the tree."""
    names: set[str] = set()
    seen: set[Path] = set()
    waiting = [(path, imports)]
    while waiting:
        file, pattern = waiting.pop()
        if file not in seen:
            seen.add(file)
            tops, below = _imports(tree, file, pattern)
            names |= tops
            waiting += below
    return names


@functools.cache
def _imports(
    tree: Path, file: Path, pattern: re.Pattern[str]
) -> tuple[frozenset[str], tuple[tuple[Path, re.Pattern[str]], ...]]:
    """The top-level names that one file imports, and the files of the tree that this loads, with what counts there."""
    found = pattern.findall(file.read_text(encoding="utf-8"))
    below: dict[Path, re.Pattern[str]] = {}
    for module, things in found:
        top = module.partition(".")[0]
        if top in _OURS:
            below |= dict.fromkeys(_files_of(tree, module, things), _ON_LOADING if top == "petastore" else _ANYWHERE)
    return frozenset(module.partition(".")[0] for module, _ in found), tuple(below.items())


def _files_of(tree: Path, module: str, things: str) -> list[Path]:
    """The files that importing a module, and things that may be modules, from it loads; packages above it included."""
    parts = module.split(".")
    modules = [parts[:length] for length in range(1, len(parts) + 1)]
    modules += [[*parts, thing.split(" as ")[0].strip()] for thing in things.split(",") if thing.strip()]
    places = [tree.joinpath(*names) for names in modules]
    files = [place.with_suffix(".py") for place in places] + [place / "__init__.py" for place in places]
    return [file for file in files if file.is_file()]
