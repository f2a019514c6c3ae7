"""Predicates: row filters in Python for `make_reader(predicate=…)`. No I/O.

Use one of these classes, or derive from `PredicateBase`:

| predicate | includes a row |
|---|---|
| `in_set(values, field)` | if the value of the field is one of the values |
| `in_intersection(values, field)` | if the array contains any of the values |
| `in_lambda(fields, function)` | if the function returns True for the fields |
| `in_negate(predicate)` | if the predicate excludes it |
| `in_reduce(predicates, all)` | if all predicates include it; with `any`, at least one |
| `in_pseudorandom_split(fractions, index, field)` | if the hash of the value falls into this part of a split |

A missing value is None and is compared as in Python and Petastorm: `in_set` includes missing values if None is in the
set, and `in_negate` includes every row that the negated predicate excludes. Filters (`petastore.col`) follow SQL
instead: a comparison with a missing value is neither true nor false.

`in_pseudorandom_split` converts the value to text by Python's `str` and computes the MD5 digest of its UTF-8 bytes,
modulo `2**63 - 1`. Each part of the split has a half-open range of these numbers, in proportion to its fraction. On a
64-bit machine, Petastorm computes the same split, so existing splits stay the same. The text of a missing value is
`None`, or `nan` in a column of floats, as in Petastorm.
"""

from __future__ import annotations

import abc
import functools
import hashlib
import json
import numbers
import operator
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.errors import InvalidArgumentError
from petastore.expressions import Expression, col
from petastore.expressions.literal import as_literal, equality_key, equality_keys, literal_json
from petastore.schema.values import each_value

__all__ = ["PredicateBase", "in_intersection", "in_lambda", "in_negate", "in_pseudorandom_split", "in_reduce", "in_set"]


def python_values(column: NDArray[Any]) -> Sequence[Any] | NDArray[Any]:
    """Return one value per row, None if missing.

    Numbers become Python numbers, which compare faster than NumPy scalars.
    """
    values = each_value(column)
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        return values.tolist()
    return values


def of_distinct(column: NDArray[Any], answer: Callable[[Any], bool]) -> NDArray[np.bool_]:
    """Return a function's result for each row, shape (rows,).

    For numbers and times without missing values, the function is called once per distinct value (values are compared
    bitwise). For other columns, it is called once per row.

    Example:
        >>> of_distinct(np.array([3, 5, 3]), lambda value: value > 4).tolist()
        [False, True, False]
    """
    if isinstance(column, np.ma.MaskedArray) or column.dtype.kind not in "biufmM" or column.dtype.itemsize > 8:
        return np.fromiter((answer(value) for value in each_value(column)), np.bool_, count=len(column))
    bits = np.ascontiguousarray(column).view(f"u{column.dtype.itemsize}")
    distinct, place = np.unique(bits, return_inverse=True)
    answers = np.fromiter((answer(value) for value in distinct.view(column.dtype)), np.bool_, count=len(distinct))
    return answers[place.reshape(-1)]


class PredicateBase(abc.ABC):
    """Base class of predicates. Define `get_fields` and `do_include` in a subclass.

    Several threads call a predicate, once per row, in any order. The result must depend only on the row.

    You may also define `do_include_batch(columns)`, which all readers then call instead, with many rows at a time.
    `columns` is a dict from field name to array (rows, …): masked arrays if values are missing, None in object arrays.
    It returns a bool array (rows,).

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
        """Return the names of the fields that the predicate needs."""

    @abc.abstractmethod
    def do_include(self, values: Any) -> Any:
        """Return whether to include a row.

        Args:
            values: Dict from field name to the row's value, None if missing. In `make_batch_reader`, unless
                `do_include_batch` is defined, a pandas DataFrame of many rows, as in Petastorm; return a boolean Series
                then.
        """

    def cache_key(self) -> str | None:
        """Return a key for the filter cache; None disables caching.

        Predicates that include the same rows may have equal keys; other predicates must have different keys.
        """
        return None

    def as_expression(self) -> Expression | None:
        """Return a filter expression that includes the same rows, or None if none exists.

        The expression must be true or false for each row, never null. petastore uses it to skip row groups by partition
        values and statistics, without reading them.
        """
        return None


def told_by(predicate: Any, method: str) -> Any:
    """Return the result of the predicate's `cache_key` or `as_expression`.

    Return None if the predicate does not have this method.
    """
    tell = getattr(predicate, method, None)
    return tell() if callable(tell) else None


def checked_predicate(predicate: Any, *, name: str) -> Any:
    """Return a part of a combined predicate, after checking that it is a predicate.

    Raises:
        InvalidArgumentError: The part is not a predicate.
    """
    asks = any(callable(getattr(predicate, method, None)) for method in ("do_include", "do_include_batch"))
    if isinstance(predicate, type) or not asks or not callable(getattr(predicate, "get_fields", None)):
        raise InvalidArgumentError(
            f"{name} must be made of objects with get_fields and do_include or do_include_batch, got {predicate!r:.80}"
        )
    return predicate


def field_name(field: Any, *, name: str) -> str:
    """Return the name of a field, given the field or its name.

    Raises:
        InvalidArgumentError: `field` is neither a name nor a field.
    """
    found = field if isinstance(field, str) else getattr(field, "name", None)
    if not isinstance(found, str) or not found:
        raise InvalidArgumentError(f"predicate_field must be the name of a field for {name}, got {field!r:.80}")
    return found


def field_names(fields: Iterable[Any], *, name: str) -> tuple[str, ...]:
    """Return the names of the fields that a predicate needs, in the given order.

    Raises:
        InvalidArgumentError: The value is not a list of names, or is empty.
    """
    if isinstance(fields, str) or not isinstance(fields, Iterable):
        raise InvalidArgumentError(f"predicate_fields must be a list of field names for {name}, got {fields!r:.80}")
    names = tuple(field_name(field, name=name) for field in fields)
    if not names:
        raise InvalidArgumentError(f"predicate_fields must have at least one field name for {name}, got none")
    return names


class CombinedPredicate(PredicateBase):
    """Predicate computed from the results of other predicates, its parts.

    Readers evaluate each part by its fastest method.
    """

    parts: tuple[Any, ...]
    """The predicates that are combined."""

    def get_fields(self) -> set[str]:
        """Return the fields that any part needs."""
        return {name for part in self.parts for name in part.get_fields()}

    @abc.abstractmethod
    def combined(self, answers: Sequence[NDArray[np.bool_]]) -> NDArray[np.bool_]:
        """Combine the results of the parts: one boolean array (rows,) for each part.

        Return one boolean array (rows,).
        """


class in_negate(CombinedPredicate):  # noqa: N801 - Petastorm's name
    """A predicate that negates another predicate.

    Args:
        predicate: The predicate to negate.

    Raises:
        InvalidArgumentError: `predicate` is not a predicate.

    Example:
        >>> from petastore.predicates import in_set
        >>> in_negate(in_set({1}, "id")).do_include({"id": 2})
        True
    """

    def __init__(self, predicate: Any) -> None:
        self.parts = (checked_predicate(predicate, name="in_negate"),)

    def do_include(self, values: Mapping[str, Any]) -> bool:
        """Return whether the predicate excludes the row."""
        return not self.parts[0].do_include(values)

    def combined(self, answers: Sequence[NDArray[np.bool_]]) -> NDArray[np.bool_]:
        """Return the negation of the predicate's results."""
        return ~answers[0]

    def cache_key(self) -> str | None:
        """Return a cache key derived from the negated predicate's key; None if it has no key."""
        key = told_by(self.parts[0], "cache_key")
        return None if key is None else json.dumps(["in_negate", key])

    def as_expression(self) -> Expression | None:
        """Return the negated filter expression; None if the predicate has no expression."""
        found = told_by(self.parts[0], "as_expression")
        return None if found is None else ~found


class in_reduce(CombinedPredicate):  # noqa: N801 - Petastorm's name
    """A predicate that combines predicates by a function such as `all` or `any`.

    With `all`, cheap predicates run first: predicates with a filter expression, then predicates on partition columns.
    All other predicates are called only for the rows that remain.

    Args:
        predicate_list: The predicates to combine.
        reduce_func: Function that combines the list of a row's results: `all`, `any`, or your own.

    Raises:
        InvalidArgumentError: `predicate_list` is empty or has an item that is not a predicate, or `reduce_func` is not
            callable.

    Example:
        >>> from petastore.predicates import in_set
        >>> both = in_reduce([in_set({1, 2}, "id"), in_set({"train"}, "split")], all)
        >>> both.do_include({"id": 2, "split": "val"})
        False
    """

    def __init__(self, predicate_list: Iterable[Any], reduce_func: Callable[[list[bool]], Any]) -> None:
        if not isinstance(predicate_list, Iterable):
            raise InvalidArgumentError(f"predicate_list must be a list of predicates, got {predicate_list!r:.80}")
        self.parts = tuple(checked_predicate(part, name="in_reduce") for part in predicate_list)
        if not self.parts:
            raise InvalidArgumentError("predicate_list must have at least one predicate, got an empty list")
        if not callable(reduce_func):
            raise InvalidArgumentError(
                f"reduce_func must be a function of a list of results, such as all, got {reduce_func!r:.80}"
            )
        self.reduce_func = reduce_func

    @property
    def is_all(self) -> bool:
        """Whether a row must match all predicates (`reduce_func` is `all`)."""
        return self.reduce_func is all or self.reduce_func is np.all

    @property
    def is_any(self) -> bool:
        """Whether a row must match at least one predicate (`reduce_func` is `any`)."""
        return self.reduce_func is any or self.reduce_func is np.any

    def do_include(self, values: Mapping[str, Any]) -> bool:
        """Return the result of `reduce_func` for the row."""
        return bool(self.reduce_func([bool(part.do_include(values)) for part in self.parts]))

    def combined(self, answers: Sequence[NDArray[np.bool_]]) -> NDArray[np.bool_]:
        """Return the combined result for each row, shape (rows,).

        Functions other than `all` and `any` are called once per distinct combination of results.
        """
        if self.is_all:
            return functools.reduce(operator.and_, answers)
        if self.is_any:
            return functools.reduce(operator.or_, answers)
        # outcomes: distinct combinations of the parts' results, shape (combinations, parts)
        outcomes, place = np.unique(np.stack(answers, axis=1), axis=0, return_inverse=True)
        said = [bool(self.reduce_func(outcome)) for outcome in outcomes.tolist()]
        return np.array(said, dtype=np.bool_)[place.reshape(-1)]

    def cache_key(self) -> str | None:
        """Return a cache key derived from the predicates' keys.

        Return None for a function other than `all` and `any`, or if a predicate has no key.
        """
        keys = [told_by(part, "cache_key") for part in self.parts]
        if None in keys or not (self.is_all or self.is_any):
            return None
        return json.dumps(["in_reduce", "all" if self.is_all else "any", keys])

    def as_expression(self) -> Expression | None:
        """Return the combined filter expressions of the predicates.

        Return None for a function other than `all` and `any`, or if a predicate has no filter expression.
        """
        found = [told_by(part, "as_expression") for part in self.parts]
        if not (self.is_all or self.is_any) or any(part is None for part in found):
            return None
        return functools.reduce(operator.and_ if self.is_all else operator.or_, found)


_DATE = np.dtype("datetime64[D]")
_PLACES = 2**63 - 1
_ROUNDING = 1e-6


class in_pseudorandom_split(PredicateBase):  # noqa: N801 - Petastorm's name
    """A predicate that selects one part of a pseudorandom split of the rows.

    Rows are split by the hash of a field: rows with equal values belong to the same part, and so do all rows with a
    missing value. Fractions are exact only on average, so small parts of small datasets may be empty.

    Args:
        fraction_list: Fraction of each part, at least 0; their sum is at most 1. Remaining rows belong to no part.
        subset_index: Number of the part to include, from 0.
        predicate_field: Name of a scalar field.

    Raises:
        InvalidArgumentError: `subset_index` or `fraction_list` is invalid.

    Example:
        >>> train, val = (in_pseudorandom_split([0.8, 0.2], part, "id") for part in (0, 1))
        >>> [train.do_include({"id": n}) for n in range(5)], val.do_include({"id": 3})
        ([True, True, False, True, True], False)
    """

    def __init__(self, fraction_list: Sequence[float], subset_index: int, predicate_field: str) -> None:
        self._field = field_name(predicate_field, name="in_pseudorandom_split")
        fractions = _checked(fraction_list)
        if isinstance(subset_index, bool) or not isinstance(subset_index, numbers.Integral):
            raise InvalidArgumentError(f"subset_index must be an int of at least 0, got {subset_index!r}")
        if not 0 <= subset_index < len(fractions):
            raise InvalidArgumentError(
                f"subset_index must be below {len(fractions)}, the number of parts of fraction_list, got {subset_index}"
            )
        # Added from left to right, as in Petastorm, because another order of additions may round differently.
        self._low: float = (sum(fractions[:subset_index]) if subset_index else 0) * (_PLACES - 1)
        self._high: float = sum(fractions[: subset_index + 1]) * (_PLACES - 1)

    def get_fields(self) -> set[str]:
        """Return the name of the field."""
        return {self._field}

    def do_include(self, values: Mapping[str, Any]) -> bool:
        """Return whether the row belongs to the part."""
        return self._includes(str(values[self._field]))

    def do_include_batch(self, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """Return a boolean array (rows,): True for rows of the part.

        Each distinct value is hashed once.
        """
        column = columns[self._field]
        if column.dtype.kind in "biufmM" and column.ndim == 1 and not isinstance(column, np.ma.MaskedArray):
            return of_distinct(column, lambda value: self._includes(str(value)))
        missing = "nan" if column.dtype.kind == "f" else "None"
        texts = [missing if value is None else str(value) for value in each_value(column)]
        answers = {text: self._includes(text) for text in dict.fromkeys(texts)}
        return np.fromiter((answers[text] for text in texts), np.bool_, count=len(texts))

    def cache_key(self) -> str | None:
        """Return a cache key derived from the part's bounds and the field."""
        return json.dumps(["in_pseudorandom_split", self._field, repr(self._low), repr(self._high)])

    def _includes(self, text: str) -> bool:
        place = int(hashlib.md5(text.encode(), usedforsecurity=False).hexdigest(), 16) % _PLACES
        return bool(self._low <= place < self._high)


def _checked(fractions: Any) -> list[Any]:
    found: list[Any] = (
        list(fractions) if isinstance(fractions, (Sequence, np.ndarray)) and not isinstance(fractions, str) else []
    )
    is_number = [isinstance(part, numbers.Real) and not isinstance(part, bool) and float(part) >= 0 for part in found]
    if not found or not all(is_number) or not sum(found) <= 1 + _ROUNDING:
        raise InvalidArgumentError(
            f"fraction_list must be fractions of at least 0 with a sum of at most 1, got {fractions!r:.200}"
        )
    return found


class _ValuesOfField(PredicateBase):
    """Base class of predicates that search for some values in one field."""

    def __init__(self, inclusion_values: Iterable[Any], predicate_field: str) -> None:
        name = type(self).__name__
        self._field = field_name(predicate_field, name=name)
        self._values = _listed(inclusion_values)
        self._keys = equality_keys(self._values, name=f"inclusion_values of {name}")

    def get_fields(self) -> set[str]:
        """Return the name of the field."""
        return {self._field}

    def cache_key(self) -> str | None:
        """Return a cache key derived from the values and the field.

        Return None if a value has an unsupported type.
        """
        try:
            keys = {json.dumps(None if value is None else literal_json(as_literal(value))) for value in self._values}
        except InvalidArgumentError:
            return None
        return json.dumps([type(self).__name__, self._field, sorted(keys)])


class in_set(_ValuesOfField):  # noqa: N801 - Petastorm's name
    """A predicate that includes rows whose scalar field has one of the given values.

    1 equals 1.0, times are equal if they are the same instant in any unit, and NaN equals nothing. None in the values
    includes rows with a missing value. Dates and booleans also equal their text in partition directories, such as
    `"2026-01-31"` and `"true"`.

    Args:
        inclusion_values: The values to include.
        predicate_field: Name of a scalar field.

    Raises:
        InvalidArgumentError: `inclusion_values` is not a collection, or contains values of an unsupported type.

    Example:
        >>> in_set(["train", "val"], "split").do_include({"split": "test"})
        False
        >>> in_set({3}, "id").as_expression()
        col('id').isin([3]) & col('id').is_valid()
    """

    def do_include(self, values: Mapping[str, Any]) -> bool:
        """Return whether the row's value is one of the values."""
        return _has_key(values[self._field], self._keys)

    def do_include_batch(self, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """Return a boolean array (rows,): True for rows whose value is one of the values."""
        return _is_among(columns[self._field], self._keys)

    def as_expression(self) -> Expression | None:
        """Return an `isin` filter, which is false for missing values.

        If None is among the values, the filter is true for missing values. Return None if a value has an unsupported
        type.
        """
        try:
            found = col(self._field).isin(_without_nan(self._values))
        except InvalidArgumentError:
            return None
        return found if None in self._keys else found & col(self._field).is_valid()


class in_intersection(_ValuesOfField):  # noqa: N801 - Petastorm's name
    """A predicate that includes rows whose array has any of the given values.

    Args:
        inclusion_values: The values, compared as in `in_set`. Rows with a missing array are excluded.
        predicate_field: Name of an array field.

    Raises:
        InvalidArgumentError: `inclusion_values` is not a collection, or contains values that cannot be looked up.

    Example:
        >>> in_intersection([7, 8], "labels").do_include({"labels": np.array([1, 8])})
        True
    """

    def do_include(self, values: Mapping[str, Any]) -> bool:
        """Return whether the row's array contains any of the values.

        Raises:
            InvalidArgumentError: The row's value is not an array.
        """
        value = values[self._field]
        return value is not None and bool(_is_among(self._flat(value), self._keys).any())

    def do_include_batch(self, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """Return a boolean array (rows,): True where the array contains any of the values."""
        column = columns[self._field]
        if column.dtype != np.dtype(object) and column.ndim > 1:
            cells: NDArray[Any] = np.asarray(np.ma.getdata(column)).reshape(len(column), -1)
            found = _is_among(cells.reshape(-1), self._keys).reshape(cells.shape).any(axis=1)
            missing: Any = np.ma.getmaskarray(column).reshape(len(column), -1).any(axis=1)
            return found & ~missing
        rows = (self.do_include({self._field: value}) for value in each_value(column))
        return np.fromiter(rows, np.bool_, count=len(column))

    def _flat(self, value: Any) -> NDArray[Any]:
        if not isinstance(value, Iterable):
            raise InvalidArgumentError(
                f"predicate_field must be an array field for in_intersection, got {self._field!r} with "
                f"{value!r:.80}. Use in_set for scalar fields"
            )
        return np.asarray(value).reshape(-1)


class in_lambda(PredicateBase):  # noqa: N801 - Petastorm's name
    """A predicate that calls a Python function.

    The filter cache does not store its results.

    Args:
        predicate_fields: Names of the fields to pass to the function, in the order of its arguments.
        predicate_func: The function. In `make_reader` it receives the values of a row (None if missing) and returns a
            bool. In `make_batch_reader` it receives a pandas Series per field and returns a boolean Series.
        state_arg: Additional last argument of the function, unless None. It must be thread-safe, because all threads
            share it.

    Raises:
        InvalidArgumentError: `predicate_fields` is not a list of names, or `predicate_func` is not callable.

    Example:
        >>> in_lambda(["x", "y"], lambda x, y: x > y).do_include({"x": 2, "y": 1})
        True
    """

    def __init__(
        self, predicate_fields: Iterable[str], predicate_func: Callable[..., Any], state_arg: Any = None
    ) -> None:
        self._fields = field_names(predicate_fields, name="in_lambda")
        if not callable(predicate_func):
            raise InvalidArgumentError(f"predicate_func must be callable for in_lambda, got {predicate_func!r:.80}")
        self._function = predicate_func
        self._state: tuple[Any, ...] = () if state_arg is None else (state_arg,)

    def get_fields(self) -> set[str]:
        """Return the names of the fields that the function receives."""
        return set(self._fields)

    def do_include(self, values: Mapping[str, Any]) -> Any:
        """Return the function's result."""
        return self._function(*(values[name] for name in self._fields), *self._state)


def _listed(values: Any) -> Any:
    """Return a collection as a list, and other values unchanged.

    A later check can then show the other values in its error message.
    """
    return list(values) if isinstance(values, Iterable) and not isinstance(values, (str, bytes)) else values


def _is_among(column: NDArray[Any], keys: frozenset[Hashable]) -> NDArray[np.bool_]:
    if column.dtype.kind in "mM":
        return of_distinct(column, lambda value: _has_key(value, keys))
    found = (_has_key(value, keys) for value in python_values(column))
    return np.fromiter(found, np.bool_, count=len(column))


def _has_key(value: Any, keys: frozenset[Hashable]) -> bool:
    """Return whether a value equals one of the wanted values.

    `keys` has the `equality_key` of each wanted value. A date or boolean also matches its text in a partition
    directory, such as `"2026-01-31"` or `"true"`.
    """
    key = equality_key(value)
    if key in keys:
        return True
    if isinstance(key, bool):
        return str(key).lower() in keys
    return isinstance(value, np.datetime64) and value.dtype == _DATE and str(value) in keys


def _without_nan(values: list[Any]) -> list[Any]:
    kept = {key: value for value in values if (key := equality_key(value)) == key}
    return list(kept.values())
