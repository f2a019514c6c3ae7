"""What a predicate is: the fields that it looks at, and whether it includes a row."""

from __future__ import annotations

import abc
from collections.abc import Iterable
from typing import Any

from petastore.errors import InvalidArgumentError
from petastore.expressions import Expression

__all__ = ["PredicateBase", "checked_predicate", "field_name", "field_names", "told_by"]


class PredicateBase(abc.ABC):
    """A test of rows. Derive from it and say `get_fields` and `do_include`.

    Predicates are asked in threads, several at a time, about each row once and in no particular order; their answers
    should depend on the row alone.

    Whoever defines `do_include_batch(columns)` too is asked about many rows at once, in every reader: `columns` are
    arrays by field name, shape (rows, …), masked where values are missing (or with None where they are objects), and
    the answer is a boolean array of shape (rows,).

    Example:
        >>> class Even(PredicateBase):
        ...     def get_fields(self):
        ...         return {"id"}
        ...     def do_include(self, values):
        ...         return values["id"] % 2 == 0
        >>> Even().do_include({"id": 3})
        False
    """

    @abc.abstractmethod
    def get_fields(self) -> set[str]:
        """Names of the fields that it looks at."""

    @abc.abstractmethod
    def do_include(self, values: Any) -> Any:
        """Whether a row is included.

        Args:
            values: The row's values by field name, None where one is missing. In `make_batch_reader`, unless there is
                `do_include_batch`, a pandas DataFrame of many rows instead, as in Petastorm; the answer is then a
                boolean Series.
        """

    def cache_key(self) -> str | None:
        """Text that equal answers share, so that they are remembered; None where nobody can promise that."""
        return None

    def as_expression(self) -> Expression | None:
        """The filter that includes the same rows, or None where there is none.

        It is false where the predicate is, and never null. With it, row groups are left out by partition values and
        statistics before anything is read.
        """
        return None


def told_by(predicate: Any, method: str) -> Any:
    """What a predicate tells of itself by `cache_key` or `as_expression`; None where it has no such method."""
    tell = getattr(predicate, method, None)
    return tell() if callable(tell) else None


def checked_predicate(predicate: Any, *, name: str) -> Any:
    """A predicate that others are made of.

    Raises:
        InvalidArgumentError: It is none.
    """
    asks = any(callable(getattr(predicate, method, None)) for method in ("do_include", "do_include_batch"))
    if isinstance(predicate, type) or not asks or not callable(getattr(predicate, "get_fields", None)):
        raise InvalidArgumentError(
            f"{name} is made of predicates, objects with get_fields and do_include, not {predicate!r:.80}"
        )
    return predicate


def field_name(field: Any, *, name: str) -> str:
    """The name of a field that a predicate looks at; the field itself will do.

    Raises:
        InvalidArgumentError: It is neither a name nor a field.
    """
    found = field if isinstance(field, str) else getattr(field, "name", None)
    if not isinstance(found, str) or not found:
        raise InvalidArgumentError(f"{name} looks at a field that is given by its name, not {field!r:.80}")
    return found


def field_names(fields: Iterable[Any], *, name: str) -> tuple[str, ...]:
    """The names of fields that a predicate looks at, in the order given.

    Raises:
        InvalidArgumentError: They are no list of names, or there are none.
    """
    if isinstance(fields, str) or not isinstance(fields, Iterable):
        raise InvalidArgumentError(f"{name} takes a list of field names, not {fields!r:.80}")
    names = tuple(field_name(field, name=name) for field in fields)
    if not names:
        raise InvalidArgumentError(f"{name} takes at least one field name")
    return names
