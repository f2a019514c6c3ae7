"""Tests of the package layout: small packages, no import cycles, unique names, checked layers, one test folder each."""

from __future__ import annotations

import ast
import collections
import graphlib
import re
import tomllib
from pathlib import Path

MOST_FILES = 15


def module_of(path: Path, repository: Path) -> str:
    return ".".join(path.relative_to(repository).with_suffix("").parts).removesuffix(".__init__")


def imported_by(path: Path, modules: set[str]) -> set[str]:
    """Return which of the modules a file imports anywhere, including in functions and for type checking."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update({f"{node.module}.{name.name}" for name in node.names} & modules or {node.module})
    return found & modules


def test_packages_have_a_limited_number_of_files(repository: Path) -> None:
    floors = collections.Counter(path.parent for path in (repository / "petastore").rglob("*.py"))
    assert {str(floor.relative_to(repository)): count for floor, count in floors.items() if count > MOST_FILES} == {}


def test_modules_have_no_import_cycles(repository: Path) -> None:
    paths = {module_of(path, repository): path for path in (repository / "petastore").rglob("*.py")}
    imports = {module: imported_by(path, set(paths)) - {module} for module, path in paths.items()}
    graphlib.TopologicalSorter(imports).prepare()  # raises CycleError, whose message names the modules of a cycle


NAMED_FOR_A_FRAMEWORK = {"keras", "petastorm", "DataLoader", "PetastoreDataModule"}
"""Names of modules and classes that exist once for each framework, because its users expect that name."""


def test_modules_and_public_classes_have_different_names(repository: Path) -> None:
    paths = list((repository / "petastore").rglob("*.py"))
    modules = [path.stem for path in paths if not path.stem.startswith("__")]
    classes = [
        node.name
        for path in paths
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert len(modules) > 100
    assert len(classes) > 100
    for names in (modules, classes):
        twice = {name for name, count in collections.Counter(names).items() if count > 1}
        assert twice - NAMED_FOR_A_FRAMEWORK == set()


def layers_of(repository: Path, container: str) -> list[list[str]]:
    """Return the layers of an import contract from top to bottom, each as a list of names."""
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract.get("containers") == [container]]
    return [re.findall(r"\w+", layer) for layer in layers]


def picture_of(repository: Path, first: str, arrow: str) -> list[list[str]]:
    """Return the names in the diagram that begins with `first`, split at arrows."""
    page = (repository / "docs/explanation/a-reader-runs-a-plan.md").read_text(encoding="utf-8")
    (picture,) = re.findall(rf"```text\n({first}\b.*?)```", page, re.DOTALL)
    return [re.findall(r"\w+", names) for names in picture.split(arrow)]


def test_layer_diagram_of_the_architecture_page_equals_the_checked_layers(repository: Path) -> None:
    layers = layers_of(repository, "petastore")[::-1]
    height = {name: number for number, names in enumerate(layers) for name in names}
    pictured = picture_of(repository, "errors", "←")
    heights = [[height[name] for name in names] for names in pictured]
    assert all(len(set(group)) == 1 for group in heights)
    assert heights == sorted(heights)
    packages = {path.parent.name for path in (repository / "petastore").glob("*/__init__.py")}
    assert packages <= {name for names in pictured for name in names}


def test_architecture_page_diagram_of_reader_layers_equals_checked_layers(repository: Path) -> None:
    assert picture_of(repository, "mixed_sources", "→") == layers_of(repository, "petastore.readers")


TOOLS = {"fuzz", "benchmarks", "corpus", "examples", "laws", "pythons", "servers"}
"""Folders of tests of the repository, of its tools and of other writers' files, without a package in petastore."""


def packages_of(repository: Path) -> set[Path]:
    """Return the packages, by their path relative to `petastore`."""
    return {
        path.parent.relative_to(repository / "petastore") for path in (repository / "petastore").rglob("__init__.py")
    }


def folders_with_tests(root: Path) -> set[Path]:
    return {path.parent.relative_to(root) for path in root.rglob("test_*.py")}


def test_each_package_has_a_test_folder(repository: Path) -> None:
    # JAX is installed only in the environment of `neighbours`.
    of_neighbours = {Path("adapters") / folder for folder in folders_with_tests(repository / "neighbours")}
    assert packages_of(repository) - folders_with_tests(repository / "tests") - of_neighbours == set()


def test_each_test_folder_has_a_package_or_a_module(repository: Path) -> None:
    modules = {
        path.with_suffix("").relative_to(repository / "petastore") for path in repository.glob("petastore/**/*.py")
    }
    folders = folders_with_tests(repository / "tests") - packages_of(repository) - modules
    assert {str(folder) for folder in folders if folder.parts[0] not in TOOLS} == set()
    assert {folder.parts[0] for folder in folders} == TOOLS
