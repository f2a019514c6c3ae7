"""Tests of finding Python interpreters, and of the error for a named Python that is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pythons.interpreters import MissingPythonError, found, named, promised

MINOR = f"3.{sys.version_info[1]}"


def program(folder: Path, text: str) -> Path:
    """Write an executable shell script with the name of this Python, and return its path."""
    folder.mkdir(parents=True)
    path = folder / f"python{MINOR}"
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def runs(folder: Path) -> Path:
    return program(folder, f"exec '{sys.executable}' \"$@\"")


def test_python_that_does_not_run_is_skipped(tmp_path: Path) -> None:
    program(tmp_path / "shims", "echo 'this version is not set' >&2; exit 127")
    folders = [tmp_path / "nowhere", tmp_path / "shims", runs(tmp_path / "b").parent]
    there = found([MINOR], os.pathsep.join(map(str, folders)), tmp_path / "none")[MINOR]
    assert there is not None
    assert there.path == tmp_path / "b" / f"python{MINOR}"
    assert there.version == sys.version_info[:3]
    assert there.minor == MINOR


def test_python_of_another_version_than_its_name_is_skipped(tmp_path: Path) -> None:
    program(tmp_path / "bin", "echo 3 4 10 cpython")
    assert found([MINOR], str(tmp_path / "bin"), tmp_path / "none") == {MINOR: None}


def test_pythons_of_pyenv_are_found(tmp_path: Path) -> None:
    mine = runs(tmp_path / "versions" / "1.2.3" / "bin")
    there = found([MINOR, "3.99"], str(tmp_path / "empty"), tmp_path / "versions")
    assert there["3.99"] is None
    seen = there[MINOR]
    assert seen is not None
    assert seen.path == mine


def test_python_is_named_by_path_command_or_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = runs(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(mine.parent))
    assert [python.path for python in named([str(mine), mine.name, MINOR])] == [mine] * 3


def test_missing_named_python_raises() -> None:
    with pytest.raises(MissingPythonError, match=r"no Python 3\.99 on PATH or among pyenv's versions"):
        named([sys.executable, "3.99"])
    with pytest.raises(MissingPythonError, match="no Python /no/where/python3"):
        named(["/no/where/python3"])


def test_make_pythons_fails_for_a_missing_named_python(repository: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.pythons", "/no/where/python3.13"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("pythons: there is no Python /no/where/python3.13 ")


def test_oldest_promised_python_is_the_oldest_installable(repository: Path) -> None:
    text = (repository / "pyproject.toml").read_text(encoding="utf-8")
    assert f'requires-python = ">={promised(text)[0]}"' in text
