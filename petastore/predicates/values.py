"""Predicates on the values of one field: is it one of these, has it one of these."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.errors import InvalidArgumentError
from petastore.expressions import Expression, col
from petastore.expressions.equality import equality_key, equality_keys
from petastore.expressions.literal import as_literal, literal_json
from petastore.predicates.column import of_distinct, python_values
from petastore.predicates.predicate import PredicateBase, field_name
from petastore.schema.values import each_value

__all__ = ["in_intersection", "in_set"]


class in_set(PredicateBase):  # noqa: N801 - Petastorm's name
    """Includes rows whose value is one of some: the filter `col(field).isin(values)`, and as quick.

    Values are compared as `petastore.expressions.equality` says: 1 is 1.0, an instant is one however it is written, NaN
    is equal to nothing. None among them includes rows without a value.

    Args:
        inclusion_values: The values.
        predicate_field: Name of the field, which has scalars.

    Raises:
        InvalidArgumentError: The values are no collection, or cannot be looked up.

    Example:
        >>> in_set(["train", "val"], "split").do_include({"split": "test"})
        False
        >>> in_set({3}, "id").as_expression()
        col('id').isin([3]) & col('id').is_valid()
    """

    def __init__(self, inclusion_values: Iterable[Any], predicate_field: str) -> None:
        self._field = field_name(predicate_field, name="in_set")
        self._values = _listed(inclusion_values)
        self._keys = equality_keys(self._values, name="inclusion_values of in_set")

    def get_fields(self) -> set[str]:
        """The one field."""
        return {self._field}

    def do_include(self, values: Mapping[str, Any]) -> bool:
        """Whether the value of the row is one of them."""
        return equality_key(values[self._field]) in self._keys

    def do_include_batch(self, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """Where the value is one of them, shape (rows,)."""
        return _is_among(columns[self._field], self._keys)

    def cache_key(self) -> str | None:
        """The values and the field; None where a value is of a kind of its own."""
        return _cache_key("in_set", self._values, self._field)

    def as_expression(self) -> Expression | None:
        """`isin`, and false where the value is missing and None is not asked for."""
        try:
            found = col(self._field).isin(_without_nan(self._values))
        except InvalidArgumentError:
            return None
        return found if None in self._keys else found & col(self._field).is_valid()


class in_intersection(PredicateBase):  # noqa: N801 - Petastorm's name
    """Includes rows whose array has one of some values; rows without an array are not included.

    Args:
        inclusion_values: The values; compared as by `in_set`.
        predicate_field: Name of the field, which has arrays.

    Raises:
        InvalidArgumentError: The values are no collection, or cannot be looked up.

    Example:
        >>> in_intersection([7, 8], "labels").do_include({"labels": np.array([1, 8])})
        True
    """

    def __init__(self, inclusion_values: Iterable[Any], predicate_field: str) -> None:
        self._field = field_name(predicate_field, name="in_intersection")
        self._values = _listed(inclusion_values)
        self._keys = equality_keys(self._values, name="inclusion_values of in_intersection")

    def get_fields(self) -> set[str]:
        """The one field."""
        return {self._field}

    def do_include(self, values: Mapping[str, Any]) -> bool:
        """Whether the array of the row has one of them.

        Raises:
            InvalidArgumentError: The value is no array.
        """
        value = values[self._field]
        return value is not None and bool(_is_among(self._flat(value), self._keys).any())

    def do_include_batch(self, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """Where the array has one of them, shape (rows,)."""
        column = columns[self._field]
        if column.dtype != np.dtype(object) and column.ndim > 1:
            cells: NDArray[Any] = np.asarray(np.ma.getdata(column)).reshape(len(column), -1)
            found = _is_among(cells.reshape(-1), self._keys).reshape(cells.shape).any(axis=1)
            missing: Any = np.ma.getmaskarray(column).reshape(len(column), -1).any(axis=1)
            return found & ~missing
        rows = (self.do_include({self._field: value}) for value in each_value(column))
        return np.fromiter(rows, np.bool_, count=len(column))

    def cache_key(self) -> str | None:
        """The values and the field; None where a value is of a kind of its own."""
        return _cache_key("in_intersection", self._values, self._field)

    def _flat(self, value: Any) -> NDArray[Any]:
        if not isinstance(value, Iterable):
            raise InvalidArgumentError(
                f"in_intersection looks into arrays, but {self._field!r} has {value!r:.80}; use in_set"
            )
        return np.asarray(value).reshape(-1)


def _listed(values: Any) -> Any:
    """The values, kept once they are iterated; what is no collection is left to be refused."""
    return list(values) if isinstance(values, Iterable) and not isinstance(values, (str, bytes)) else values


def _is_among(column: NDArray[Any], keys: frozenset[Hashable]) -> NDArray[np.bool_]:
    if column.dtype.kind in "mM":
        return of_distinct(column, lambda value: equality_key(value) in keys)
    found = (equality_key(value) in keys for value in python_values(column))
    return np.fromiter(found, np.bool_, count=len(column))


def _without_nan(values: list[Any]) -> list[Any]:
    kept = {key: value for value in values if (key := equality_key(value)) == key}
    return list(kept.values())


def _cache_key(name: str, values: list[Any], field: str) -> str | None:
    try:
        keys = {json.dumps(None if value is None else literal_json(as_literal(value))) for value in values}
    except InvalidArgumentError:
        return None
    return json.dumps([name, field, sorted(keys)])
