"""Placeholders for names of Petastorm that petastore does not have: only tests that use them fail."""

from __future__ import annotations

from typing import Any, NoReturn

from petastore.errors import LegacyNameError
from petastore.interop.petastorm_names import NAMES, Instead

__all__ = ["InnerName", "is_here"]


def is_here(module: str, name: str) -> bool:
    """Whether petastore has something under a name that a module of Petastorm's has, or such a module.

    Args:
        module: `petastorm`, or `petastorm.` and a name of the table's.
        name: What is imported from there.
    """
    inside = module.partition(".")[2]
    if isinstance(NAMES.get(inside, {}).get(name), str):
        return True
    return f"{inside}.{name}".lstrip(".") in NAMES


class InnerName:
    """Bound where a test imports a name that is not here; whatever is done with it fails, and says so.

    Classes may be derived from it, because modules do so while they are imported; they inherit nothing.
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
