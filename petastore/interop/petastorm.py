"""Import switch: makes `import petastorm` import petastore.

It is for code that cannot be changed. Modules are loaded on first use. One import finder class serves two root
packages. For `petastorm` it is the first finder, installed only by `petastore.interop.petastorm.install`. For
`petastore` it is the last finder, for modules that have other names in petastore: `petastore.unischema`,
`petastore.etl.dataset_metadata`, …

```bash
python -m petastore.interop.petastorm train.py --epochs 3
python -m petastore.interop.petastorm -m their_package.train --epochs 3
```

or, before anything imports Petastorm:

```python
from petastore.interop import petastorm

petastorm.install()
```

The table `petastore.interop.petastorm_names` defines all modules and names. Petastorm itself is not changed and need
not be installed. Partition keys that are dates or booleans stay text, as in Petastorm. If you can change the code,
replace `petastorm` with `petastore` in its imports instead.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import runpy
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from petastore.errors import InvalidArgumentError, LegacyNameError
from petastore.interop.petastorm_names import NAMES, Instead
from petastore.storage.files import listing

__all__ = ["STANDS_FOR", "LegacyModule", "LegacyModules", "install", "is_installed", "main", "uninstall"]


STANDS_FOR = "0.13.1"
"""Version of Petastorm whose names are provided, as `petastorm.__version__`, for code that compares it."""


class LegacyModule(types.ModuleType):
    """Module with Petastorm's names for petastore's objects, each loaded on first use.

    Objects keep their names in petastore, so that unpickling them does not need the import switch.
    """

    @property
    def _inside(self) -> str:
        """Module name without its root package: `etl.dataset_metadata`."""
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
        # Petastorm's modules import each other, so that `import petastorm` also provides `petastorm.reader`.
        if f"{self._inside}.{name}".lstrip(".") in NAMES:
            return importlib.import_module(f"{self.__name__}.{name}")
        raise AttributeError(
            f"module {self.__name__!r} has no attribute {name!r}, neither in petastore nor in Petastorm"
        )

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
        """Root package of the modules."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - the import system passes it
        target: Any = None,  # noqa: ARG002
    ) -> importlib.machinery.ModuleSpec | None:
        """Return an import spec for a module in the table of names, otherwise None."""
        root, _, inside = fullname.partition(".")
        if root != self.root or inside not in NAMES:
            return None
        is_package = not inside or any(name.startswith(f"{inside}.") for name in NAMES)
        return importlib.machinery.ModuleSpec(
            fullname,
            self,  # type: ignore[arg-type]  # this class has the methods of a loader
            origin="petastore.interop.petastorm_names",
            is_package=is_package,
        )

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> LegacyModule:
        """Return a module whose names are loaded on first use."""
        return LegacyModule(spec.name)

    def exec_module(self, module: LegacyModule) -> None:
        """Set the docstring and `__all__` of the module; no names are loaded yet."""
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
"""Import finder of petastore's objects under Petastorm's names, for `sys.meta_path`."""


def switch_on() -> None:
    """Make `import petastorm` import petastore, in this process. May be called again.

    Raises:
        InvalidArgumentError: The real Petastorm was imported already.
    """
    imported = sys.modules.get("petastorm")
    if imported is not None and not isinstance(imported, LegacyModule):
        where = getattr(imported, "__file__", None) or "an unknown place"
        raise InvalidArgumentError(
            f"the original petastorm is already imported, from {where}, and its objects may be in use. Call "
            "petastore.interop.petastorm.install() before the first `import petastorm`"
        )
    if FINDER not in sys.meta_path:
        sys.meta_path.insert(0, FINDER)
    listing.keys_are_text = True


def _module(name: str) -> types.ModuleType:
    """Import a module by name; used when a `LegacyModule` is unpickled.

    A process that unpickles it, such as a Spark worker, may lack the import switch, which is then installed.
    """
    if name.partition(".")[0] == FINDER.root and name not in sys.modules:
        switch_on()
    return importlib.import_module(name)


_USAGE = "usage: python -m petastore.interop.petastorm SCRIPT [ARGUMENT …]\n       … -m MODULE [ARGUMENT …]"


def install() -> None:
    """Make `import petastorm` import petastore in this process, until `uninstall`.

    May be called again.

    Raises:
        InvalidArgumentError: The real Petastorm was imported already; its objects would mix with ours.

    Example:
        >>> install()
        >>> from petastorm.unischema import Unischema
        >>> Unischema.__module__
        'petastore.schema.unischema'
        >>> from petastorm.reader_impl.shuffling_buffer import RandomShufflingBuffer
        Traceback (most recent call last):
        petastore.errors.LegacyNameError: petastore has no petastorm.reader_impl.shuffling_buffer.RandomShufflingBuffer:
        readers shuffle; use make_reader(shuffle_rows=True, shuffle_buffer_bytes=…)
        >>> uninstall()
    """
    switch_on()


def is_installed() -> bool:
    """Return whether `import petastorm` imports petastore."""
    return FINDER in sys.meta_path


def uninstall() -> None:
    """Undo `install`: a later `import petastorm` imports the real package.

    May be called repeatedly.
    """
    listing.keys_are_text = False
    if FINDER in sys.meta_path:
        sys.meta_path.remove(FINDER)
    for name in [name for name in sys.modules if name.partition(".")[0] == "petastorm"]:
        if isinstance(sys.modules[name], LegacyModule):
            del sys.modules[name]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a script or module as `python` would, with the import switch.

    `import petastorm` imports petastore in the script and in its child processes.

    Args:
        arguments: `SCRIPT [ARGUMENT …]` or `-m MODULE [ARGUMENT …]`; None means `sys.argv[1:]`.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    is_module = given[:1] == ["-m"]
    given = given[1:] if is_module else given
    if not given or given[0].startswith("-"):
        raise SystemExit(_USAGE)
    if is_module and given[0].partition(".")[0] == "petastorm":
        raise SystemExit(
            f"{given[0]}: use petastore's commands instead of Petastorm's programs: inspect (for etl.metadata_util), "
            "generate-metadata, copy and throughput. See petastore --help"
        )
    install()
    sys.argv = given
    # Python's `-m` puts the working directory first in `sys.path`, but for a script its own directory must be first.
    if not is_module:
        sys.path[0] = str(Path(given[0]).resolve().parent)
    _switch_on_in_children()
    if is_module:
        runpy.run_module(given[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(given[0], run_name="__main__")


def _switch_on_in_children() -> None:
    """Activate the import switch in child processes, too.

    Add a directory with a module `petastorm` to `sys.path` and `PYTHONPATH`; importing this module activates the
    switch. Children of multiprocessing inherit `sys.path`, other child processes inherit `PYTHONPATH`.
    """
    folder = str(Path(__file__).parent / "_path")
    sys.path.insert(1, folder)
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])


if __name__ == "__main__":
    # Import this file under its real name, so that a process has only one import finder.
    from petastore.interop.petastorm import main as run

    run()
