"""Names of a package that are loaded on first use: who needs few of them imports few of the modules that have them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["late_names"]


def late_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """What a package has as its `__getattr__`. A name that was asked for is an ordinary one of it from then on.

    Thread-safe: threads that ask at once get the same object.

    Args:
        package: Its name, `__name__`.
        homes: Of each name: the module that has it.

    Example:
        >>> ask = late_names("petastore.late_names", {"gcd": "math"})
        >>> ask("gcd")(12, 18)
        6
        >>> ask("lcm")
        Traceback (most recent call last):
        AttributeError: module 'petastore.late_names' has no attribute 'lcm'
    """

    def ask(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return ask
