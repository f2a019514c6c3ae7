"""Placeholders for names of Petastorm that petastore does not have: only tests that use them fail."""

from __future__ import annotations

from typing import Any, NoReturn

from petastore.errors import LegacyNameError
from petastore.interop.petastorm_names import NAMES, Instead

__all__ = ["InnerName", "is_here"]


def is_here(module: str, name: str) -> bool:
    """Return whether petastore has a replacement for a name of a Petastorm module, or for a submodule.

    Args:
        module: `petastorm`, or a submodule such as `petastorm.unischema`.
        name: The name that is imported from it.
    """
    inside = module.partition(".")[2]
    if isinstance(NAMES.get(inside, {}).get(name), str):
        return True
    return f"{inside}.{name}".lstrip(".") in NAMES


class InnerName:
    """Placeholder for a name that petastore does not have; calls and attributes raise LegacyNameError.

    Modules derive classes from such names during import, so this is allowed; the classes inherit nothing.
    """

    def __init__(self, module: str, name: str) -> None:
        entry = NAMES.get(module.partition(".")[2], {}).get(name)
        advice = entry.advice if isinstance(entry, Instead) else "it was private to Petastorm"
        self._said = f"{module}.{name} is of Petastorm's inside: {advice}"

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise LegacyNameError(self._said)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise LegacyNameError(self._said)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()
