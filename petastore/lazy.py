"""Lazy values: cached properties without a lock, and names that load their module.

`late_names` lets a package import the module of a name on first use.

`functools.cached_property` of Python 3.11 has one lock for all instances of a class. If a process forks while a thread
holds this lock, the child waits forever, because this thread does not exist in the child. In addition, threads that
compute properties of different instances wait for each other. The properties in this module have no lock.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, Generic, Self, TypeVar, overload

__all__ = ["late_names", "once"]


_Value = TypeVar("_Value")


class once(Generic[_Value]):  # noqa: N801 - used as a decorator, like `property`
    """Cached attribute: the first access calls the decorated method.

    Thread-safe without a lock: concurrent threads may each compute the value, but all get the one that was stored
    first. The function must return equal values in each call. The value is stored in the instance's `__dict__`, so that
    the next access runs no Python code, and pickling and copying include it.

    Args:
        function: The method; its docstring becomes the docstring of the attribute.

    Example:
        >>> class Circle:
        ...     def __init__(self, radius: float) -> None:
        ...         self.radius = radius
        ...
        ...     @once
        ...     def area(self) -> float:
        ...         print("worked out")
        ...         return 3.14 * self.radius**2
        >>> circle = Circle(2)
        >>> circle.area, circle.area
        worked out
        (12.56, 12.56)
    """

    def __init__(self, function: Callable[[Any], _Value]) -> None:
        self._function = function
        self._name = function.__name__
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> _Value: ...

    def __get__(self, instance: object | None, owner: type) -> _Value | Self:
        if instance is None:
            return self
        value = self._function(instance)
        # `super()` in a subclass that overrides the attribute calls this: only the value of the subclass is cached.
        if getattr(type(instance), self._name) is not self:
            return value
        kept: _Value = instance.__dict__.setdefault(self._name, value)
        return kept


def late_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a package's `__getattr__` that imports a module on first use of its name.

    The value then becomes an ordinary attribute of the package. Concurrent threads get the same object.

    Args:
        package: Name of the package, `__name__`.
        homes: Dict from name to the module that defines it.

    Example:
        >>> ask = late_names("petastore.lazy", {"gcd": "math"})
        >>> ask("gcd")(12, 18)
        6
        >>> ask("lcm")
        Traceback (most recent call last):
        AttributeError: module 'petastore.lazy' has no attribute 'lcm'
    """

    def ask(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return ask
