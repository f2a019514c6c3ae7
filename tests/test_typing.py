"""Tests of type information: the package has `py.typed`, and mypy checks `tests/user_programs` in strict mode."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import petastore

PACKAGE = Path(petastore.__file__).parent
ROOT = Path(__file__).parents[1]


def test_mypy_checks_user_programs_and_reports_unused_ignores() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
    assert settings["strict"] is True  # strict includes warn_unused_ignores
    assert "tests" in settings["files"]
    assert "exclude" not in settings
    relaxed = [override["module"] for override in settings["overrides"] if "warn_unused_ignores" in override]
    assert relaxed == []
    programs = [path for path in (ROOT / "tests" / "user_programs").glob("*.py") if path.name != "__init__.py"]
    rejected = [re.findall(r"# type: ignore\[[\w-]+\]$", path.read_text("utf-8"), re.MULTILINE) for path in programs]
    assert len(programs) == 8
    assert sum(map(len, rejected)) > 40


def test_package_has_py_typed_in_wheels() -> None:
    assert (PACKAGE / "py.typed").is_file()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["hatch"]["build"] == {"targets": {"wheel": {"packages": ["petastore"]}}}
    assert "Typing :: Typed" in project["project"]["classifiers"]
    ignored = subprocess.run(["git", "check-ignore", "petastore/py.typed"], cwd=ROOT, capture_output=True, check=False)
    assert ignored.returncode == 1  # hatchling leaves out files that git ignores
