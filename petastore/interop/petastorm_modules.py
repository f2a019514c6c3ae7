"""Modules made of the table of Petastorm's names: they load what a name stands for when somebody asks for it.

One finder serves two roots. Under `petastorm` it is put first, and only by `petastore.interop.petastorm.install`. Under
`petastore` it is asked last, for modules that petastore has under other names: `petastore.unischema`,
`petastore.etl.dataset_metadata`, …
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import types
from collections.abc import Sequence
from typing import Any

from petastore.errors import InvalidArgumentError, LegacyNameError
from petastore.interop.petastorm_names import NAMES, Instead

__all__ = ["FINDER", "STANDS_FOR", "LegacyModule", "LegacyModules", "switch_on"]

STANDS_FOR = "0.13.1"
"""The release of Petastorm whose names these are: `petastorm.__version__`, for code that compares it."""


class LegacyModule(types.ModuleType):
    """A module of Petastorm's, of which each name is an object of petastore's; loaded on first use.

    Objects keep the names that they have in petastore, so what is pickled needs no switch where it is read.
    """

    @property
    def _inside(self) -> str:
        """The name without its root: `etl.dataset_metadata`."""
        return self.__name__.partition(".")[2]

    def __getattr__(self, name: str) -> Any:
        entry = NAMES[self._inside].get(name)
        if isinstance(entry, Instead):
            raise LegacyNameError(f"petastore has no {self.__name__}.{name}: {entry.advice}", name=self.__name__)
        if entry is not None:
            home, _, attribute = entry.partition(":")
            value = getattr(importlib.import_module(home), attribute)
            setattr(self, name, value)
            return value
        # Petastorm's own modules import each other, so that `petastorm.reader` is there after `import petastorm`.
        if f"{self._inside}.{name}".lstrip(".") in NAMES:
            return importlib.import_module(f"{self.__name__}.{name}")
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}, here and in Petastorm")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_names_at_home(self._inside)})

    def __reduce__(self) -> tuple[Any, ...]:
        return _module, (self.__name__,)


class LegacyModules:
    """Finder and loader of legacy modules under one root, for `sys.meta_path`.

    Example:
        >>> LegacyModules("petastore").find_spec("petastore.ngram").name
        'petastore.ngram'
        >>> LegacyModules("petastore").find_spec("petastore.n_gram") is None
        True
    """

    def __init__(self, root: str) -> None:
        self.root = root
        """The first word of the modules' names."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - the import system gives it
        target: Any = None,  # noqa: ARG002
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of a module that is in the table, else None."""
        root, _, inside = fullname.partition(".")
        if root != self.root or inside not in NAMES:
            return None
        is_package = not inside or any(name.startswith(f"{inside}.") for name in NAMES)
        return importlib.machinery.ModuleSpec(
            fullname,
            self,  # type: ignore[arg-type]  # it is a loader by its methods
            origin="petastore.interop.petastorm_names",
            is_package=is_package,
        )

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> LegacyModule:
        """An empty module."""
        return LegacyModule(spec.name)

    def exec_module(self, module: LegacyModule) -> None:
        """Say what the module has; nothing is loaded yet."""
        inside = module.__name__.partition(".")[2]
        module.__doc__ = (
            f"Petastorm's names, for what petastore has; see petastore.interop.petastorm_names, {inside!r}."
        )
        module.__all__ = _names_at_home(inside)  # type: ignore[attr-defined]
        if not inside:
            module.__version__ = STANDS_FOR  # type: ignore[attr-defined]


def _names_at_home(inside: str) -> list[str]:
    return sorted(name for name, entry in NAMES[inside].items() if isinstance(entry, str))


FINDER = LegacyModules("petastorm")
"""What finds petastore's objects under Petastorm's names, once it is in `sys.meta_path`."""


def switch_on() -> None:
    """Have `import petastorm` give petastore, in this process. May be called again.

    Raises:
        InvalidArgumentError: The real Petastorm was imported already.
    """
    imported = sys.modules.get("petastorm")
    if imported is not None and not isinstance(imported, LegacyModule):
        where = getattr(imported, "__file__", None) or "an unknown place"
        raise InvalidArgumentError(
            f"the real petastorm was imported already, from {where}, and some of its objects may be in use; call "
            "petastore.interop.petastorm.install() before the first `import petastorm`"
        )
    if FINDER not in sys.meta_path:
        sys.meta_path.insert(0, FINDER)


def _module(name: str) -> types.ModuleType:
    """A legacy module in a process that may not have the switch on, such as a Spark worker."""
    if name.partition(".")[0] == FINDER.root and name not in sys.modules:
        switch_on()
    return importlib.import_module(name)
