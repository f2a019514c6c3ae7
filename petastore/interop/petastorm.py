"""The switch: `import petastorm` gives petastore, for code that cannot be changed.

```bash
python -m petastore.interop.petastorm train.py --epochs 3
python -m petastore.interop.petastorm -m their_package.train --epochs 3
```

or, before anything imports Petastorm:

```python
from petastore.interop import petastorm

petastorm.install()
```

Modules and names are those of one table, `petastore.interop.petastorm_names`. Nothing is changed in Petastorm itself,
which need not be installed. Code that can be changed needs no switch: write `petastore` for `petastorm` in its imports.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from petastore.interop.petastorm_modules import FINDER, LegacyModule, switch_on

__all__ = ["install", "is_installed", "main", "uninstall"]

_USAGE = "usage: python -m petastore.interop.petastorm SCRIPT [ARGUMENT …]\n       … -m MODULE [ARGUMENT …]"


def install() -> None:
    """Make `import petastorm` give petastore, in this process, until `uninstall`. May be called again.

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
        readers shuffle by themselves: make_reader(shuffle_rows=True, shuffle_buffer_bytes=…)
        >>> uninstall()
    """
    switch_on()


def is_installed() -> bool:
    """Whether `import petastorm` gives petastore."""
    return FINDER in sys.meta_path


def uninstall() -> None:
    """Undo `install`: a later `import petastorm` finds what is installed under that name. May be called again."""
    if FINDER in sys.meta_path:
        sys.meta_path.remove(FINDER)
    for name in [name for name in sys.modules if name.partition(".")[0] == "petastorm"]:
        if isinstance(sys.modules[name], LegacyModule):
            del sys.modules[name]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a script or module as `python` would, with the switch on, here and in the processes that it starts.

    Args:
        arguments: `SCRIPT [ARGUMENT …]` or `-m MODULE [ARGUMENT …]`; None takes the command line's.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    is_module = given[:1] == ["-m"]
    given = given[1:] if is_module else given
    if not given or given[0].startswith("-"):
        raise SystemExit(_USAGE)
    if is_module and given[0].partition(".")[0] == "petastorm":
        raise SystemExit(
            f"{given[0]}: Petastorm's own programs are commands of petastore's: inspect in place of etl.metadata_util, "
            "generate-metadata, copy, throughput; see petastore --help"
        )
    install()
    sys.argv = given
    # Python's own `-m` has put the working directory first; a script has its own folder there.
    if not is_module:
        sys.path[0] = str(Path(given[0]).resolve().parent)
    _switch_on_in_children()
    if is_module:
        runpy.run_module(given[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(given[0], run_name="__main__")


def _switch_on_in_children() -> None:
    """Child processes begin without the switch: there the first `import petastorm` finds a file that turns it on.

    Those of multiprocessing take this process's path, others what the environment says.
    """
    folder = str(Path(__file__).parent / "_path")
    sys.path.insert(1, folder)
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])


if __name__ == "__main__":
    # This very file, under the name by which others import it: there is one finder in a process.
    from petastore.interop.petastorm import main as run

    run()
