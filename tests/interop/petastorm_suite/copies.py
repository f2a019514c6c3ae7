"""Copy Petastorm's tests from a checkout, and adapt them to the installed packages."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from petastore.errors import InvalidArgumentError
from tests.interop.petastorm_suite.beside_the_switch import OF_THE_SOURCE
from tests.interop.petastorm_suite.inner_names import is_here
from tests.interop.petastorm_suite.substitutions import Substitution

__all__ = ["copied", "release_of", "test_modules_of"]

_HOOK: Final = '''\
"""Written by petastore: `import petastorm` gives petastore, and the tests in this folder beside it."""

from pathlib import Path

from tests.interop.petastorm_suite.beside_the_switch import give

give(Path(__file__).parent.parent)
'''


def release_of(source: Path) -> str:
    """Return the release of a checkout of Petastorm.

    Raises:
        InvalidArgumentError: The folder is not a checkout of Petastorm.
    """
    told = source / "petastorm" / "__init__.py"
    found = re.search(r"__version__ = '([^']+)'", told.read_text(encoding="utf-8")) if told.is_file() else None
    if found is None or not (source / "petastorm" / "tests").is_dir():
        raise InvalidArgumentError(
            f"{source} is no checkout of Petastorm: petastorm/__init__.py and petastorm/tests are not there; "
            "git clone --branch v0.13.1 https://github.com/uber/petastorm, and name that folder"
        )
    return found[1]


def test_modules_of(source: Path) -> list[str]:
    """Return the test modules of a checkout, by their paths below `petastorm/`, such as `tests/test_unischema.py`.

    Files with such a name but without tests, which others import, are omitted.
    """
    root = source / "petastorm"
    named = [path for path in root.rglob("test_*.py") if path.parent.name == "tests"]
    have_tests = [path for path in named if re.search(r"^\s*def test_", path.read_text(encoding="utf-8"), re.MULTILINE)]
    return sorted(path.relative_to(root).as_posix() for path in have_tests)


test_modules_of.__test__ = False  # type: ignore[attr-defined]  # pytest, which imports this, would call it


def copied(source: Path, folder: Path, substitutions: Sequence[Substitution]) -> None:
    """Copy the tests and the packages that they import, with substitutions.

    Args:
        source: A checkout of Petastorm.
        folder: The folder in which `petastorm` is created.
        substitutions: Text replacements in the copies.

    Raises:
        InvalidArgumentError: The text of a substitution does not occur.
    """
    for package in OF_THE_SOURCE:
        inside = package.replace(".", "/")
        if (source / inside).is_dir():
            shutil.copytree(source / inside, folder / inside)
            # pytest derives a module's name from its parent folders, which therefore must be packages.
            (folder / inside).parent.joinpath("__init__.py").touch()
    (folder / "petastorm" / "__init__.py").write_text(_HOOK, encoding="utf-8")
    unused = list(substitutions)
    for path in sorted((folder / "petastorm").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for substitution in substitutions:
            if not substitution.files or path.stem in substitution.files:
                text, count = re.subn(substitution.before, substitution.after, text, flags=re.MULTILINE)
                unused = [one for one in unused if one is not substitution or not count]
        path.write_text(_with_inner_names(text), encoding="utf-8")
    if unused:
        texts = ", ".join(one.before for one in unused)
        raise InvalidArgumentError(f"Petastorm's tests have no {texts}; take these from substitutions.py")


def _with_inner_names(text: str) -> str:
    """Replace imports of names that petastore does not have by placeholders; line numbers stay the same."""
    lines = text.splitlines()
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
    return "\n".join(lines) + "\n"


def _is_petastores(module: str) -> bool:
    """Return whether petastore provides a module of Petastorm: all except the copied packages."""
    return module.split(".")[0] == "petastorm" and not module.startswith(OF_THE_SOURCE)
