"""Rows as named tuples, for any column names."""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

__all__ = ["Row", "row_type"]


class Row(tuple[Any, ...]):
    """One row: a named tuple whose fields may have any name.

    A name that is no identifier cannot be an attribute: reach it as `row["a-b"]`, which works for every name, or by
    position. `_asdict()` and `_column_names` keep the true names. Rows pickle.
    """

    __slots__ = ()
    _column_names: tuple[str, ...] = ()
    _type_name: str = "Row"

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            try:
                return tuple.__getitem__(self, self._column_names.index(key))
            except ValueError:
                raise KeyError(f"{key!r}; this row has {', '.join(map(repr, self._column_names))}") from None
        return tuple.__getitem__(self, key)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...  # which fields there are, the dataset says

    def _asdict(self) -> dict[str, Any]:
        """The row as a new dict from column name to value."""
        return dict(zip(self._column_names, self, strict=True))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._type_name, self._column_names, tuple(self))


@functools.lru_cache(maxsize=256)
def row_type(type_name: str, column_names: tuple[str, ...]) -> type[Any]:
    """The named tuple type for these columns; equal arguments give the same type.

    Example:
        >>> row = row_type("user", ("id", "a-b"))(7, 8)
        >>> row.id, row["a-b"], row._asdict()
        (7, 8, {'id': 7, 'a-b': 8})
        >>> row
        user(id=7, _1=8)
    """
    fields = collections.namedtuple(type_name, column_names, rename=True)  # type: ignore[misc]  # noqa: PYI024 - typing.NamedTuple cannot rename
    members = {"__slots__": (), "_column_names": column_names, "_type_name": type_name}
    # `Row` comes first, so that its `__getitem__`, `_asdict` and `__reduce__` win over the named tuple's.
    return type(type_name, (Row, fields), members)


def _rebuild(type_name: str, column_names: tuple[str, ...], values: Iterable[Any]) -> Any:
    return row_type(type_name, column_names)._make(values)
