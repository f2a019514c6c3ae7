"""What came damaged over the web is asked for once more: a bit may have flipped on its way, and the file be well."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["read_right"]

_Read = TypeVar("_Read")


def read_right(
    read: Callable[[], _Read],
    again: Callable[[], _Read] | None,
    *,
    refused: type[Exception] | tuple[type[Exception], ...],
    forget: Callable[[], None] | None = None,
) -> _Read:
    """What is read; where that is refused, what comes when it is asked for once more.

    Args:
        read: Reads it, and refuses what cannot be.
        again: Asks for it once more; None where nothing comes over the web, and it would be the same.
        refused: What is raised then.
        forget: Called each time: what came may be kept, and is to be kept no longer.

    Raises:
        Exception: It is refused the second time, too; or anything else that reading raises, the first time.

    Example:
        >>> came = iter(["1x", "12"])
        >>> def read() -> int:
        ...     return int(next(came))
        >>> read_right(read, read, refused=ValueError)
        12
    """
    for ask, is_last in ((read, again is None), (again or read, True)):
        try:
            return ask()
        except refused:
            if forget is not None:
                forget()
            if is_last:
                raise
    raise AssertionError("the last one has returned or raised")
