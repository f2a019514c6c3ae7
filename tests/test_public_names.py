"""Tests of public names: they equal the list in `public_names.json`, which is changed only by hand.

`docs/reference/versions.md` says what is public: the names of the reference, and those that these packages list. A
removed name, or a new name that is missing in the list, fails.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

import petastore

PACKAGE = Path(petastore.__file__).parent
PINNED: dict[str, list[str]] = json.loads((Path(__file__).parent / "public_names.json").read_text(encoding="utf-8"))
REFERENCE = "docs/reference"

PACKAGES = (
    "cache", "codecs", "dataset", "distributed", "expressions", "plan", "readers", "schema", "spark", "tracing",
    "tuning", "view",
)  # fmt: skip
"""Packages whose names are public, in addition to those below `adapters` and the modules of `testing`."""

MODULES = (
    "adapters/horovod", "adapters/jax", "adapters/keras", "errors", "images", "indexers", "indexing", "notebook",
    "predicates", "selectors",
)  # fmt: skip


def _listed(path: Path) -> list[str]:
    """Return the names in a module's `__all__` without importing it: one environment cannot import all modules."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return sorted(ast.literal_eval(node.value))
    return []


def _public_modules() -> list[Path]:
    packages = [PACKAGE / "__init__.py", *(PACKAGE / name / "__init__.py" for name in PACKAGES)]
    below = sorted((PACKAGE / "adapters").glob("*/__init__.py"))
    modules = [PACKAGE / f"{name}.py" for name in MODULES]
    return [*packages, *below, *modules, *sorted((PACKAGE / "testing").glob("*.py"))]


def _names() -> dict[str, list[str]]:
    """Return the public names of each module."""
    found = {
        ".".join(("petastore", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): _listed(
            path
        )
        for path in _public_modules()
    }
    return {module: names for module, names in found.items() if names}


def test_packages_list_the_promised_public_names() -> None:
    assert _names() == {module: names for module, names in PINNED.items() if module != REFERENCE}


def test_reference_shows_the_promised_public_names(repository: Path) -> None:
    pages = sorted((repository / REFERENCE).rglob("*.md"))
    shown = {
        name for page in pages for name in re.findall(r"^::: (\S+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert sorted(shown) == PINNED[REFERENCE]


def test_petastore_all_and_dir_equal_its_promised_public_names() -> None:
    assert sorted(petastore.__all__) == dir(petastore) == PINNED["petastore"]
    for name in PINNED["petastore"]:
        assert getattr(petastore, name) is not None


@pytest.mark.parametrize(
    "module", ["petastore.codecs", "petastore.adapters.torch", "petastore.plan", "petastore.spark"]
)
def test_list_of_promised_public_names_is_not_empty(module: str) -> None:
    assert len(PINNED[module]) > 5
