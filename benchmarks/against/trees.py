"""Prepare the trees to measure: `petastore` of a commit or of this checkout, with the benchmarks of this checkout.

Each tree is copied to a folder with the same layout, and compiled in advance, so that only the source differs.
"""

from __future__ import annotations

import compileall
import dataclasses
import hashlib
import io
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Final

__all__ = ["NoSuchCommitError", "Tree", "checked_out", "exported"]

PACKAGE: Final = "petastore"
BENCHMARKS: Final = "benchmarks"
_COMPILED: Final = shutil.ignore_patterns("__pycache__")


class NoSuchCommitError(Exception):
    """Git has no such commit, or that commit has no `petastore`; the message is what it said."""


@dataclasses.dataclass(frozen=True)
class Tree:
    """What is measured."""

    name: str
    """For people: `"this tree"`, or a commit's short hash."""

    root: Path
    """A folder that holds `petastore` and `benchmarks`."""

    digest: str
    """Of the source of its `petastore`."""


def exported(repository: Path, commit: str, root: Path) -> Tree:
    """A commit, by `git archive`.

    Args:
        repository: The checkout, whose benchmarks measure it.
        commit: Anything that git takes for one: a hash, a branch, `HEAD~3`.
        root: A folder to be made.

    Raises:
        NoSuchCommitError: Git knows no such commit.
    """
    name = _git(repository, "rev-parse", "--short=7", "--verify", "--end-of-options", f"{commit}^{{commit}}")
    archive = _git(repository, "archive", "--format=tar", name.decode().strip(), PACKAGE)
    root.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(root, filter="data")
    return _completed(name.decode().strip(), repository, root)


def checked_out(repository: Path, root: Path, name: str = "this tree") -> Tree:
    """The checkout as it lies there, with what is not committed.

    Args:
        repository: The checkout.
        root: A folder to be made.
        name: What to call it.
    """
    shutil.copytree(repository / PACKAGE, root / PACKAGE, ignore=_COMPILED)
    return _completed(name, repository, root)


def _completed(name: str, repository: Path, root: Path) -> Tree:
    # Both are measured by the same copy of the program, because the program may be edited during the measurement.
    shutil.copytree(repository / BENCHMARKS, root / BENCHMARKS, ignore=_COMPILED)
    digest = _digest_of(root / PACKAGE)
    # Compile in advance; otherwise only the first process of each tree would compile.
    compileall.compile_dir(root / PACKAGE, quiet=2)
    return Tree(name, root, digest)


def _digest_of(package: Path) -> str:
    found = hashlib.sha256()
    for path in sorted(path for path in package.rglob("*") if path.is_file()):
        found.update(f"{path.relative_to(package)}\0{path.stat().st_size}\0".encode())
        found.update(path.read_bytes())
    return found.hexdigest()


def _git(repository: Path, *arguments: str) -> bytes:
    done = subprocess.run(["git", *arguments], cwd=repository, capture_output=True, check=False)
    if done.returncode:
        raise NoSuchCommitError(" ".join(done.stderr.decode(errors="replace").split()))
    return done.stdout
