"""Predicates that are made of others: their opposite, and several joined."""

from __future__ import annotations

import abc
import functools
import json
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.errors import InvalidArgumentError
from petastore.expressions import Expression
from petastore.predicates.predicate import PredicateBase, checked_predicate, told_by

__all__ = ["CombinedPredicate", "in_negate", "in_reduce"]


class CombinedPredicate(PredicateBase):
    """A predicate whose answer follows from those of its parts. Each part is asked in the way that it likes best."""

    parts: tuple[Any, ...]
    """The predicates that it is made of."""

    def get_fields(self) -> set[str]:
        """The fields that any of its parts looks at."""
        return {name for part in self.parts for name in part.get_fields()}

    @abc.abstractmethod
    def combined(self, answers: Sequence[NDArray[np.bool_]]) -> NDArray[np.bool_]:
        """Its answers, shape (rows,), given those of each part."""


class in_negate(CombinedPredicate):  # noqa: N801 - Petastorm's name
    """Includes the rows that a predicate does not include.

    Args:
        predicate: The predicate.

    Raises:
        InvalidArgumentError: It is no predicate.

    Example:
        >>> from petastore.predicates import in_set
        >>> in_negate(in_set({1}, "id")).do_include({"id": 2})
        True
    """

    def __init__(self, predicate: Any) -> None:
        self.parts = (checked_predicate(predicate, name="in_negate"),)

    def do_include(self, values: Mapping[str, Any]) -> bool:
        """Whether the predicate does not include the row."""
        return not self.parts[0].do_include(values)

    def combined(self, answers: Sequence[NDArray[np.bool_]]) -> NDArray[np.bool_]:
        """The opposite of its part's."""
        return ~answers[0]

    def cache_key(self) -> str | None:
        """That of the predicate, negated."""
        key = told_by(self.parts[0], "cache_key")
        return None if key is None else json.dumps(["in_negate", key])

    def as_expression(self) -> Expression | None:
        """That of the predicate, negated."""
        found = told_by(self.parts[0], "as_expression")
        return None if found is None else ~found


class in_reduce(CombinedPredicate):  # noqa: N801 - Petastorm's name
    """Includes the rows for which a function of the answers of several predicates is true.

    With `all`, parts that decide by little are asked first: those that are filters, then those that look at partition
    columns alone; the others are asked about the rows that are left.

    Args:
        predicate_list: The predicates.
        reduce_func: Takes the list of their answers for a row: `all`, `any`, or a function of yours.

    Raises:
        InvalidArgumentError: There are none, one is none, or the function is none.

    Example:
        >>> from petastore.predicates import in_set
        >>> both = in_reduce([in_set({1, 2}, "id"), in_set({"train"}, "split")], all)
        >>> both.do_include({"id": 2, "split": "val"})
        False
    """

    def __init__(self, predicate_list: Iterable[Any], reduce_func: Callable[[list[bool]], Any]) -> None:
        if not isinstance(predicate_list, Iterable):
            raise InvalidArgumentError(f"in_reduce takes a list of predicates, not {predicate_list!r:.80}")
        self.parts = tuple(checked_predicate(part, name="in_reduce") for part in predicate_list)
        if not self.parts:
            raise InvalidArgumentError("in_reduce takes at least one predicate")
        if not callable(reduce_func):
            raise InvalidArgumentError(
                f"in_reduce takes a function of a list of answers, such as all, not {reduce_func!r:.80}"
            )
        self.reduce_func = reduce_func

    @property
    def is_all(self) -> bool:
        """Whether a row is included where every part includes it."""
        return self.reduce_func is all or self.reduce_func is np.all

    @property
    def is_any(self) -> bool:
        """Whether a row is included where one part includes it."""
        return self.reduce_func is any or self.reduce_func is np.any

    def do_include(self, values: Mapping[str, Any]) -> bool:
        """What the function says of the answers for the row."""
        return bool(self.reduce_func([bool(part.do_include(values)) for part in self.parts]))

    def combined(self, answers: Sequence[NDArray[np.bool_]]) -> NDArray[np.bool_]:
        """What the function says, row by row; other functions than `all` and `any` are called once for each outcome."""
        if self.is_all:
            return functools.reduce(operator.and_, answers)
        if self.is_any:
            return functools.reduce(operator.or_, answers)
        # (outcomes, parts): the distinct rows of answers
        outcomes, place = np.unique(np.stack(answers, axis=1), axis=0, return_inverse=True)
        said = [bool(self.reduce_func(outcome)) for outcome in outcomes.tolist()]
        return np.array(said, dtype=np.bool_)[place.reshape(-1)]

    def cache_key(self) -> str | None:
        """Those of the predicates, where the function is `all` or `any`."""
        keys = [told_by(part, "cache_key") for part in self.parts]
        if None in keys or not (self.is_all or self.is_any):
            return None
        return json.dumps(["in_reduce", "all" if self.is_all else "any", keys])

    def as_expression(self) -> Expression | None:
        """Those of the predicates joined, where each has one and the function is `all` or `any`."""
        found = [told_by(part, "as_expression") for part in self.parts]
        if not (self.is_all or self.is_any) or any(part is None for part in found):
            return None
        return functools.reduce(operator.and_ if self.is_all else operator.or_, found)
