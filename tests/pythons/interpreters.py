"""Find the Python interpreters of this machine: on PATH, in pyenv, or given by path."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["Interpreter", "MissingPythonError", "found", "named", "promised"]

_TELL = "import sys; print(*sys.version_info[:3], sys.implementation.name)"


class MissingPythonError(Exception):
    """A requested Python is missing, or does not run."""


@dataclasses.dataclass(frozen=True)
class Interpreter:
    """A Python interpreter that runs."""

    path: Path
    """Path of its executable."""

    version: tuple[int, int, int]
    """Major, minor, micro."""

    @property
    def minor(self) -> str:
        """Major and minor version, such as `3.12`."""
        return f"{self.version[0]}.{self.version[1]}"

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.version))} ({self.path})"


def promised(project: str) -> list[str]:
    """Return the Python versions in the classifiers of a `pyproject.toml`.

    Example:
        >>> promised('classifiers = ["Programming Language :: Python :: 3", "Programming Language :: Python :: 3.11"]')
        ['3.11']
    """
    return re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project)


def found(minors: Iterable[str], path: str | None = None, pyenv: Path | None = None) -> dict[str, Interpreter | None]:
    """Return the first Python of each version that runs, on PATH or else in pyenv; None if there is none.

    Args:
        minors: Versions, such as `3.12`.
        path: Folders to search, as in PATH; None for the environment's PATH.
        pyenv: Folder of pyenv's versions; None for pyenv's default.
    """
    return {minor: next(_of_version(minor, path, pyenv), None) for minor in minors}


def _of_version(minor: str, path: str | None, pyenv: Path | None) -> Iterator[Interpreter]:
    folders = (os.environ.get("PATH", os.defpath) if path is None else path).split(os.pathsep)
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions") if pyenv is None else pyenv
    places = [*map(Path, folders), *sorted((place / "bin" for place in versions.glob("*")), reverse=True)]
    for place in places:
        interpreter = _ask(place / f"python{minor}")
        if interpreter is not None and interpreter.minor == minor:
            yield interpreter


def named(names: Iterable[str]) -> list[Interpreter]:
    """Return the Pythons named by version (`3.12`), by command (`python3.12`) or by path.

    Raises:
        MissingPythonError: One is missing, or does not run.
    """
    return [_named(name) for name in names]


def _named(name: str) -> Interpreter:
    if re.fullmatch(r"3\.\d+", name):
        interpreter = found([name])[name]
    else:
        where = shutil.which(name)
        interpreter = None if where is None else _ask(Path(where))
    if interpreter is None:
        raise MissingPythonError(
            f"there is no Python {name} on PATH or among pyenv's versions that runs; name its program, as in "
            "PYTHONS=/opt/python/bin/python3.13, or leave PYTHONS away to test with those that there are"
        )
    return interpreter


def _ask(program: Path) -> Interpreter | None:
    """Return the interpreter at a path; None if it is missing, fails (like some pyenv shims), or is not CPython."""
    if not os.access(program, os.X_OK):
        return None
    said = subprocess.run(
        [program, "-I", "-c", _TELL], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False
    )
    *version, implementation = said.stdout.split() or ["", ""]
    if said.returncode != 0 or implementation != sys.implementation.name:
        return None
    major, minor, micro = map(int, version)
    return Interpreter(program, (major, minor, micro))
