"""Filters in pyarrow's form, nested lists of tuples, as expressions. Pure.

`[("split", "=", "train"), ("label", "in", [1, 2])]` joins by AND; `[[…], […]]` joins such lists by OR.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

from petastore.errors import InvalidArgumentError
from petastore.expressions.expression import Column, Expression, col

__all__ = ["parse_filters"]

_FORM = (
    "filters= takes an expression such as col('a') == 1, or pyarrow's form: a list of (column, operator, value) tuples "
    "that are joined by AND, or a list of such lists that are joined by OR"
)


def _is(column: Column, value: Any) -> Expression:
    if value is not None:
        raise InvalidArgumentError(f"'is' asks for a missing value, but {value!r:.80} was given; use '=' for values")
    return column.is_null()


_OPERATORS: dict[str, Callable[[Column, Any], Any]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda column, values: column.isin(values),
    "not in": lambda column, values: ~column.isin(values),
    "is": _is,
    "is not": lambda column, value: ~_is(column, value),
}


def parse_filters(filters: Any) -> Expression:
    """The expression that `filters=` means.

    Args:
        filters: An `Expression`, or pyarrow's nested lists of `(column, operator, value)`. Operators are `=`, `==`,
            `!=`, `<`, `<=`, `>`, `>=`, `in`, `not in`, and, with None, `is` and `is not`.

    Raises:
        InvalidArgumentError: It is neither; the part that is wrong is named.

    Example:
        >>> parse_filters([("split", "=", "train"), ("label", "not in", [1, 2])])
        (col('split') == 'train') & ~col('label').isin([1, 2])
        >>> parse_filters([[("a", "<", 3)], [("a", "is", None), ("b", ">=", 5)]])
        (col('a') < 3) | (col('a').is_null() & (col('b') >= 5))
    """
    if isinstance(filters, Expression):
        return filters
    if isinstance(filters, Column):
        raise InvalidArgumentError(
            f"{filters!r} is a column and no filter yet; compare it, for instance {filters!r} == True"
        )
    if not isinstance(filters, list) or not filters:
        raise InvalidArgumentError(f"{filters!r:.200} is no filter. {_FORM}")
    if all(isinstance(item, tuple) for item in filters):
        return _conjunction(filters)
    if all(isinstance(item, list) and item for item in filters):
        return functools.reduce(operator.or_, [_conjunction(item) for item in filters])
    raise InvalidArgumentError(f"{filters!r:.200} mixes lists and tuples, or holds an empty list. {_FORM}")


def _conjunction(items: list[Any]) -> Expression:
    return functools.reduce(operator.and_, [_comparison(item) for item in items])


def _comparison(item: Any) -> Expression:
    if not isinstance(item, tuple) or len(item) != 3:
        raise InvalidArgumentError(f"{item!r:.200} is no (column, operator, value). {_FORM}")
    name, symbol, value = item
    compare = _OPERATORS.get(symbol) if isinstance(symbol, str) else None
    if compare is None:
        known = ", ".join(_OPERATORS)
        raise InvalidArgumentError(
            f"{item!r:.200} has the operator {symbol!r:.40}, which is not known; known are {known}"
        )
    found: Expression = compare(col(name), value)
    return found
