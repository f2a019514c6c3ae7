"""Parse filters typed as text, such as `(col("a") > 3) & ~col("b").is_null()`.

Python's `ast` parses the text, and only the syntax of filters is accepted. The text is never evaluated as Python code.
No I/O.
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np

from petastore.errors import InvalidArgumentError
from petastore.expressions.dnf import parse_filters
from petastore.expressions.expression import Column, Expression, col

__all__ = ["parse_filter_text"]

_MOST_CHARACTERS = 10_000

_FORM = """Write, for example, (col("age") > 3) & ~col("split").isin(["a", "b"]), or [("age", ">", 3)]"""

_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_JOINS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {ast.BitAnd: operator.and_, ast.BitOr: operator.or_}

_VALUES: dict[str, Callable[[str], Any]] = {
    "col": col,
    "Decimal": Decimal,
    "np.datetime64": np.datetime64,
    "datetime64": np.datetime64,
}
"""Functions that a filter text may call, each with one str argument."""

_METHODS = {"isin": 1, "is_null": 0, "is_valid": 0}
"""Methods of a column that a filter text may call, and their number of arguments."""


def parse_filter_text(text: str) -> Expression:
    """Parse a text as a filter expression.

    The `repr` of an expression is such a text, unless it contains a duration, infinity or NaN.

    Args:
        text: Comparisons of `col("name")` joined by `&`, `|` and `~`, or pyarrow's nested lists. Values are numbers,
            text, bytes, `True`, `False`, `np.datetime64("…")` and `Decimal("…")`; in nested lists, also `None`.

    Raises:
        InvalidArgumentError: The text is not a filter; the message names the invalid part.

    Example:
        >>> parse_filter_text('(col("age") >= 3) & ~col("split").isin(["a", "b"])')
        (col('age') >= 3) & ~col('split').isin(['a', 'b'])
        >>> parse_filter_text('[("age", "<", 3), ("day", "=", np.datetime64("2026-01-31"))]')
        (col('age') < 3) & (col('day') == np.datetime64('2026-01-31'))
        >>> parse_filter_text('__import__("os").remove("x")')
        Traceback (most recent call last):
        petastore.errors.InvalidArgumentError: filter must be made of col("name"), comparisons, values, &, | and ~, got
        "__import__('os').remove('x')". Write, for example, (col("age") > 3) & ~col("split").isin(["a", "b"]), or
        [("age", ">", 3)]
    """
    if len(text) > _MOST_CHARACTERS:
        raise InvalidArgumentError(f"filter must have at most {_MOST_CHARACTERS:,} characters, got {len(text):,}")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        value = _value(tree.body)
    except (SyntaxError, TypeError, ValueError, RecursionError, MemoryError) as problem:
        if isinstance(problem, InvalidArgumentError):
            raise
        why = problem.msg if isinstance(problem, SyntaxError) else str(problem) or type(problem).__name__
        raise InvalidArgumentError(f"filter must be an expression, got {text!r:.200}: {why}. {_FORM}") from None
    return parse_filters(value)


@functools.singledispatch
def _value(node: ast.AST) -> Any:
    """Return the value of a syntax node.

    It is an expression, a column, a literal, or a list or tuple of these.
    """
    raise InvalidArgumentError(
        f'filter must be made of col("name"), comparisons, values, &, | and ~, got {ast.unparse(node)[:200]!r}. {_FORM}'
    )


@_value.register
def _(node: ast.Constant) -> Any:
    return node.value


@_value.register
def _(node: ast.List) -> Any:
    return [_value(item) for item in node.elts]


@_value.register
def _(node: ast.Tuple) -> Any:
    return tuple(_value(item) for item in node.elts)


@_value.register
def _(node: ast.BinOp) -> Any:
    join = _JOINS.get(type(node.op))
    return _invalid(node) if join is None else join(_value(node.left), _value(node.right))


@_value.register
def _(node: ast.UnaryOp) -> Any:
    value = _value(node.operand)
    if isinstance(node.op, ast.Invert) and isinstance(value, (Expression, Column)):
        return ~value
    is_number = isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
    return -value if isinstance(node.op, ast.USub) and is_number else _invalid(node)


@_value.register
def _(node: ast.Compare) -> Any:
    compare = _COMPARISONS.get(type(node.ops[0]))
    left, right = _value(node.left), _value(node.comparators[0])
    if compare is None or len(node.ops) > 1 or not (isinstance(left, Column) or isinstance(right, Column)):
        return _invalid(node)
    return compare(left, right)


@_value.register
def _(node: ast.Call) -> Any:
    arguments = [_value(argument) for argument in node.args]
    if node.keywords:
        return _invalid(node)
    make = _VALUES.get(ast.unparse(node.func)) if isinstance(node.func, (ast.Name, ast.Attribute)) else None
    if make is not None:
        return _made(make, arguments, node)
    if not isinstance(node.func, ast.Attribute) or _METHODS.get(node.func.attr) != len(arguments):
        return _invalid(node)
    column = _value(node.func.value)
    return getattr(column, node.func.attr)(*arguments) if isinstance(column, Column) else _invalid(node)


def _made(make: Callable[[str], Any], arguments: list[Any], node: ast.AST) -> Any:
    if len(arguments) != 1 or not isinstance(arguments[0], str):
        return _invalid(node)
    try:
        return make(arguments[0])
    except (ArithmeticError, ValueError):
        return _invalid(node)


def _invalid(node: ast.AST) -> Any:
    # The undecorated `_value` raises the error for all syntax nodes that filters do not allow, so it is called here.
    return _value.dispatch(ast.AST)(node)
