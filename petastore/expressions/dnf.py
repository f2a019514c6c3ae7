"""Convert filters in pyarrow's form (nested lists of tuples) to expressions.

The tuples of one list, `[("split", "=", "train"), ("label", "in", [1, 2])]`, are joined by AND; several lists,
`[[…], […]]`, are joined by OR. No I/O.
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
    "Pass an expression such as col('a') == 1, or pyarrow's form: a list of (column, operator, value) tuples joined "
    "by AND, or a list of such lists joined by OR"
)


def _is(column: Column, value: Any) -> Expression:
    if value is not None:
        raise InvalidArgumentError(f"filters must have None after 'is', got {value!r:.80}. Use '=' for values")
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
    """Return the expression for the argument `filters=` of a reader.

    Args:
        filters: An `Expression`, or pyarrow's nested lists of `(column, operator, value)`. Operators are `=`, `==`,
            `!=`, `<`, `<=`, `>`, `>=`, `in`, `not in`, and, with None, `is` and `is not`.

    Raises:
        InvalidArgumentError: `filters` is neither of these; the message names the invalid part.

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
            f"filters must be an expression, got the column {filters!r}. Compare it, such as {filters!r} == True"
        )
    if not isinstance(filters, list) or not filters:
        raise InvalidArgumentError(f"filters must be an expression or lists of tuples, got {filters!r:.200}. {_FORM}")
    if all(isinstance(item, tuple) for item in filters):
        return _conjunction(filters)
    if all(isinstance(item, list) and item for item in filters):
        return functools.reduce(operator.or_, [_conjunction(item) for item in filters])
    raise InvalidArgumentError(
        f"filters must not mix lists and tuples, or contain an empty list, got {filters!r:.200}. {_FORM}"
    )


def _conjunction(items: list[Any]) -> Expression:
    return functools.reduce(operator.and_, [_comparison(item) for item in items])


def _comparison(item: Any) -> Expression:
    if not isinstance(item, tuple) or len(item) != 3:
        raise InvalidArgumentError(f"filters must have items (column, operator, value), got {item!r:.200}. {_FORM}")
    name, symbol, value = item
    compare = _OPERATORS.get(symbol) if isinstance(symbol, str) else None
    if compare is None:
        known = ", ".join(_OPERATORS)
        raise InvalidArgumentError(
            f"filters must use one of the operators {known}, got {symbol!r:.40} in {item!r:.200}"
        )
    found: Expression = compare(col(name), value)
    return found
