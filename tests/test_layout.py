"""The layout tells the architecture: rooms are small."""

from __future__ import annotations

import collections
import re
import tomllib
from pathlib import Path

MOST_FILES = 15


def test_no_floor_has_more_files_than_one_takes_in_at_a_glance(repository: Path) -> None:
    floors = collections.Counter(path.parent for path in (repository / "petastore").rglob("*.py"))
    assert {str(floor.relative_to(repository)): count for floor, count in floors.items() if count > MOST_FILES} == {}


def layers_of(repository: Path, container: str) -> list[list[str]]:
    """The layers of a contract, from the top, each with its names."""
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract.get("containers") == [container]]
    return [re.findall(r"\w+", layer) for layer in layers]


def picture_of(repository: Path, first: str, arrow: str) -> list[list[str]]:
    """The names in the picture that begins with a name, from arrow to arrow."""
    page = (repository / "docs/explanation/a-reader-runs-a-plan.md").read_text(encoding="utf-8")
    (picture,) = re.findall(rf"```text\n({first}\b.*?)```", page, re.DOTALL)
    return [re.findall(r"\w+", names) for names in picture.split(arrow)]


def test_the_picture_of_the_layers_is_what_is_checked(repository: Path) -> None:
    layers = layers_of(repository, "petastore")[::-1]
    height = {name: number for number, names in enumerate(layers) for name in names}
    pictured = picture_of(repository, "errors", "←")
    heights = [[height[name] for name in names] for names in pictured]
    assert all(len(set(group)) == 1 for group in heights)
    assert heights == sorted(heights)
    packages = {path.parent.name for path in (repository / "petastore").glob("*/__init__.py")}
    assert packages - {name for names in pictured for name in names} == {"predicates"}


def test_the_picture_of_the_rooms_of_readers_is_what_is_checked(repository: Path) -> None:
    assert picture_of(repository, "mixed", "→") == layers_of(repository, "petastore.readers")
