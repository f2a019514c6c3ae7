"""A predicate that is a function of some fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from petastore.errors import InvalidArgumentError
from petastore.predicates.predicate import PredicateBase, field_names

__all__ = ["in_lambda"]


class in_lambda(PredicateBase):  # noqa: N801 - Petastorm's name
    """Includes rows for which a function says so. Its answers are not remembered.

    Args:
        predicate_fields: Names of the fields that the function takes, in the order of its arguments.
        predicate_func: The function. In `make_reader` it takes the values of a row, None where one is missing, and
            returns True or False. In `make_batch_reader` it takes a pandas Series for each field and returns a boolean
            Series.
        state_arg: Given to the function after the fields, unless it is None. Threads share it, and come in no order.

    Raises:
        InvalidArgumentError: The fields are no list of names, or the function is none.

    Example:
        >>> in_lambda(["x", "y"], lambda x, y: x > y).do_include({"x": 2, "y": 1})
        True
    """

    def __init__(
        self, predicate_fields: Iterable[str], predicate_func: Callable[..., Any], state_arg: Any = None
    ) -> None:
        self._fields = field_names(predicate_fields, name="in_lambda")
        if not callable(predicate_func):
            raise InvalidArgumentError(f"in_lambda takes a function, not {predicate_func!r:.80}")
        self._function = predicate_func
        self._state: tuple[Any, ...] = () if state_arg is None else (state_arg,)

    def get_fields(self) -> set[str]:
        """The fields that the function takes."""
        return set(self._fields)

    def do_include(self, values: Mapping[str, Any]) -> Any:
        """What the function says."""
        return self._function(*(values[name] for name in self._fields), *self._state)
