"""Petastorm's tests, copied from a checkout to a folder and made to run with what is installed here."""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path
from typing import Final

from petastore.errors import RequestError
from tests.interop.petastorm_suite.inner_names import is_here
from tests.interop.petastorm_suite.substitutions import SUBSTITUTIONS

__all__ = ["copied", "release_of", "test_modules_of"]

_PACKAGES: Final = ("petastorm/tests", "petastorm/test_util")
_HOOK: Final = '''\
"""Written by petastore: `import petastorm` gives petastore, and the tests in this folder beside it."""

from pathlib import Path

from tests.interop.petastorm_suite.beside_the_switch import give

give(Path(__file__).parent.parent)
'''


def release_of(source: Path) -> str:
    """The release that a checkout of Petastorm's says it is.

    Raises:
        RequestError: The folder is no checkout of Petastorm's.
    """
    told = source / "petastorm" / "__init__.py"
    found = re.search(r"__version__ = '([^']+)'", told.read_text(encoding="utf-8")) if told.is_file() else None
    if found is None or not (source / "petastorm" / "tests").is_dir():
        raise RequestError(
            f"{source} is no checkout of Petastorm: petastorm/__init__.py and petastorm/tests are not there; "
            "git clone --branch v0.13.1 https://github.com/uber/petastorm, and name that folder"
        )
    return found[1]


def test_modules_of(source: Path) -> list[str]:
    """All test modules of a checkout, by their paths below `petastorm/`: `tests/test_unischema.py`."""
    root = source / "petastorm"
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("test_*.py") if path.parent.name == "tests")


test_modules_of.__test__ = False  # type: ignore[attr-defined]  # pytest, which imports this, would call it


def copied(source: Path, folder: Path) -> dict[str, list[str]]:
    """Copy the tests and what they import, as they run here.

    Args:
        source: A checkout of Petastorm's.
        folder: Where a folder `petastorm` is made.

    Returns:
        The names of Petastorm's that are not here, by the file that imports them.

    Raises:
        RequestError: A substitution found nothing to do.
    """
    for package in _PACKAGES:
        shutil.copytree(source / package, folder / package)
    (folder / "petastorm" / "__init__.py").write_text(_HOOK, encoding="utf-8")
    unused = set(range(len(SUBSTITUTIONS)))
    missing = {}
    for path in sorted((folder / "petastorm").glob("*/*.py")):
        text, used = _substituted(path.stem, path.read_text(encoding="utf-8"))
        text, names = _with_inner_names(text)
        path.write_text(text, encoding="utf-8")
        unused -= used
        if names:
            missing[path.stem] = names
    if unused:
        texts = ", ".join(SUBSTITUTIONS[number].before for number in sorted(unused))
        raise RequestError(f"Petastorm's tests no longer have {texts}; take these from substitutions.py")
    return missing


def _substituted(stem: str, text: str) -> tuple[str, set[int]]:
    """A file's text after all substitutions, and the numbers of those that changed something."""
    used = set()
    for number, substitution in enumerate(SUBSTITUTIONS):
        if not substitution.files or stem in substitution.files:
            text, count = re.subn(substitution.before, substitution.after, text, flags=re.MULTILINE)
            if count:
                used.add(number)
    return text, used


def _with_inner_names(text: str) -> tuple[str, list[str]]:
    """A file's text in which names that are not here are stand-ins, and those names; lines keep their numbers."""
    lines = text.splitlines()
    missing: list[str] = []
    for node in ast.parse(text).body:
        if not (isinstance(node, ast.ImportFrom) and node.module and _is_petastores(node.module)):
            continue
        away = [name.name for name in node.names if not is_here(node.module, name.name)]
        if not away:
            continue
        here = [name.name for name in node.names if name.name not in away]
        imports = [f"from {node.module} import {', '.join(here)}"] if here else []
        imports += ["from tests.interop.petastorm_suite.inner_names import InnerName"]
        imports += [f"{name} = InnerName({node.module!r}, {name!r})" for name in away]
        end = node.end_lineno or node.lineno
        lines[node.lineno - 1 : end] = ["; ".join(imports), *[""] * (end - node.lineno)]
        missing += [f"{node.module}.{name}" for name in away]
    return "\n".join(lines) + "\n", missing


def _is_petastores(module: str) -> bool:
    """Whether a module is petastore's under the switch: of Petastorm's, but not of its tests."""
    return module.split(".")[0] == "petastorm" and not module.startswith(("petastorm.tests", "petastorm.test_util"))
