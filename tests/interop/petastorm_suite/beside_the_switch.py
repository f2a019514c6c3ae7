"""Import hook: `petastorm` imports petastore, but `petastorm.tests` the copied tests; also in child processes.

The folder of the copies is on `sys.path`, and its `petastorm/__init__.py` calls `give`.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

from petastore.interop import petastorm as switch

__all__ = ["OF_THE_SOURCE", "give"]

OF_THE_SOURCE: Final = ("petastorm.tests", "petastorm.test_util", "petastorm.hdfs.tests")
"""Packages that are copied from Petastorm; all others are petastore's."""


class _TheirPackages:
    """Finder of the copied packages, which precedes petastore's finder of legacy names."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in OF_THE_SOURCE:
            parent = self._folder.joinpath(*fullname.split(".")[:-1])
            return importlib.machinery.PathFinder.find_spec(fullname, [str(parent)], target)
        if fullname.startswith("petastorm.test_util."):
            return importlib.machinery.PathFinder.find_spec(fullname, path, target)
        # pytest imports test modules itself, because it rewrites their assert statements.
        return None


def give(folder: Path) -> None:
    """Install petastore's import hook and the finder of the copied packages, while `import petastorm` runs."""
    del sys.modules["petastorm"]
    switch.install()
    sys.meta_path.insert(0, _TheirPackages(folder))
    # `import petastorm` returns the module that `sys.modules` contains at the end.
    importlib.import_module("petastorm")
