"""A property that is worked out once for each instance, without a lock.

`functools.cached_property` of Python 3.11 has one lock for all instances of a class. A child that is forked while some
thread holds it waits for ever, for that thread is not in the child; and threads that work out the properties of
different instances wait for each other. Here nobody waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

__all__ = ["once"]

_Value = TypeVar("_Value")


class once(Generic[_Value]):  # noqa: N801 - it is written as a decorator, like `property`
    """Turns a method into an attribute that is worked out when it is first asked for.

    Thread-safe without a lock: threads that ask at once may each work it out, but all get the one value that was
    written down first. The function must give equal values, whoever calls it. The value lies in the instance's
    `__dict__`, so that asking again runs no Python, and pickling and copying take it along.

    Args:
        function: The method; its docstring is the attribute's.

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
        if getattr(type(instance), self._name) is not self:  # a class below asks by `super()`, and keeps its own value
            return value
        kept: _Value = instance.__dict__.setdefault(self._name, value)
        return kept
