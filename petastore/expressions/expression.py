"""Expressions: filters over columns, built with Python operators. No I/O.

A comparison with a missing value is null, as in SQL. A row is selected if the whole expression is true.
`docs/reference/filters.md` has the truth tables.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import operator
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NoReturn, TypeVar

from petastore.errors import InvalidArgumentError
from petastore.expressions.literal import Literal, as_literal, literal_json

__all__ = ["And", "Column", "Comparison", "Expression", "Membership", "Not", "NullTest", "Or", "col", "fold"]

_Result = TypeVar("_Result")

_NO_TRUTH = (
    "a filter cannot be converted to a bool, so `and`, `or`, `not`, `if` and `1 < col(…) < 3` do not work. Use &, | "
    "and ~ with each comparison in parentheses, such as (1 < col('x')) & (col('x') < 3)"
)


class Expression:
    """Filter expression over columns, for `filters=`.

    Combine expressions with `&`, `|` and `~`. Immutable, hashable and thread-safe. Two expressions are equal if they
    have the same columns, operators and literals in the same order.

    Example:
        >>> wanted = (col("split") == "train") & ~col("label").isin([3, 7])
        >>> wanted
        (col('split') == 'train') & ~col('label').isin([3, 7])
        >>> wanted.columns
        ('split', 'label')
        >>> wanted == (col("split") == "train") & ~col("label").isin([3, 7])
        True
        >>> if col("label") > 3: pass
        Traceback (most recent call last):
        petastore.errors.InvalidArgumentError: a filter cannot be converted to a bool, so `and`, `or`, `not`, `if` and
        `1 < col(…) < 3` do not work. Use &, | and ~ with each comparison in parentheses, such as (1 < col('x')) &
        (col('x') < 3)
    """

    __slots__ = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of the expression, in order of first use."""
        found: dict[str, None] = {}
        pending: list[Any] = [self]
        while pending:
            node = pending.pop()
            if isinstance(node, (And, Or)):
                pending.extend(reversed(node.parts))
            elif isinstance(node, Not):
                pending.append(node.part)
            else:
                found[node.column] = None
        return tuple(found)

    def describe(self) -> list[Any]:
        """Return the expression as JSON values.

        They are the same on every platform, and differ for different expressions.
        """
        raise NotImplementedError

    @property
    def fingerprint(self) -> str:
        """Fingerprint: 32 hexadecimal digits, equal for equal expressions."""
        return hashlib.sha256(_text(self).encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def equals(self, other: object) -> bool:
        """Return whether another object is an equal expression.

        Equal expressions have the same columns, operators and literals in the same order.
        """
        return isinstance(other, Expression) and _text(self) == _text(other)

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if isinstance(other, Expression) else NotImplemented

    def __hash__(self) -> int:
        return hash(_text(self))

    def __and__(self, other: object) -> Expression:
        return And((*_operands(And, self), *_operands(And, _expression(other, "&"))))

    def __or__(self, other: object) -> Expression:
        return Or((*_operands(Or, self), *_operands(Or, _expression(other, "|"))))

    def __rand__(self, other: object) -> NoReturn:
        _expression(other, "&")
        raise AssertionError

    def __ror__(self, other: object) -> NoReturn:
        _expression(other, "|")
        raise AssertionError

    def __invert__(self) -> Expression:
        return self.part if isinstance(self, Not) else Not(self)

    def __bool__(self) -> bool:
        raise InvalidArgumentError(_NO_TRUTH)


def _text(expression: Expression) -> str:
    return json.dumps(expression.describe(), ensure_ascii=False, separators=(",", ":"))


def _expression(value: object, symbol: str) -> Expression:
    if isinstance(value, Expression):
        return value
    raise InvalidArgumentError(_not_yet(value, symbol))


def _not_yet(value: object, symbol: str) -> str:
    what = f"{value!r}; compare it: {value!r} == True" if isinstance(value, Column) else f"{value!r:.80}"
    return (
        f"{symbol} must combine comparisons, got {what}. & and | bind tighter than == and <, so put each "
        "comparison in parentheses"
    )


def _operands(kind: type[And | Or], expression: Expression) -> tuple[Expression, ...]:
    return expression.parts if isinstance(expression, kind) else (expression,)


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Joined(Expression):
    """Several expressions joined by one operator (AND or OR)."""

    parts: tuple[Expression, ...]
    """Expressions that the operator joins, at least one."""

    word: ClassVar[str]
    symbol: ClassVar[str]

    def describe(self) -> list[Any]:
        """Return the operator and the parts: `["and", part, …]`."""
        return [self.word, *(part.describe() for part in self.parts)]

    def __repr__(self) -> str:
        return f" {self.symbol} ".join(_in_parentheses(part) for part in self.parts)


class And(_Joined):
    """AND: true if all parts are true, false if a part is false, otherwise null."""

    __slots__ = ()
    word, symbol = "and", "&"


class Or(_Joined):
    """OR: true if a part is true, false if all parts are false, otherwise null."""

    __slots__ = ()
    word, symbol = "or", "|"


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Not(Expression):
    """NOT: true if the part is false, false if the part is true, otherwise null."""

    part: Expression
    """Expression that is negated."""

    def describe(self) -> list[Any]:
        """Return `["not", part]`."""
        return ["not", self.part.describe()]

    def __repr__(self) -> str:
        if isinstance(self.part, NullTest):
            return f"{Column(self.part.column)!r}.is_valid()"
        return f"~{_in_parentheses(self.part)}"


def _in_parentheses(part: Expression) -> str:
    is_call = isinstance(part, (Membership, NullTest, Not))
    return repr(part) if is_call else f"({part!r})"


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Comparison(Expression):
    """Comparison of a column with a literal; null if the value is missing."""

    column: str
    """Name of the column."""

    operator: str
    """One of `==`, `!=`, `<`, `<=`, `>`, `>=`."""

    literal: Literal
    """Literal to compare with."""

    def describe(self) -> list[Any]:
        """Return `[operator, column, literal]`, for example `["<=", "age", …]`."""
        return [self.operator, self.column, literal_json(self.literal)]

    def __repr__(self) -> str:
        return f"{Column(self.column)!r} {self.operator} {self.literal!r}"


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Membership(Expression):
    """Test whether the value of a column is one of several literals.

    The result is the same as `==` with each literal, joined by `|`; null if the value is missing.
    """

    column: str
    """Name of the column."""

    literals: tuple[Literal, ...]
    """Allowed values in the given order; may be empty."""

    def describe(self) -> list[Any]:
        """Return `["in", column, [literal, …]]`."""
        return ["in", self.column, [literal_json(literal) for literal in self.literals]]

    def __repr__(self) -> str:
        return f"{Column(self.column)!r}.isin({list(self.literals)!r})"


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class NullTest(Expression):
    """Test that is true if the value is missing, otherwise false; never null."""

    column: str
    """Name of the column."""

    def describe(self) -> list[Any]:
        """Return `["null", column]`."""
        return ["null", self.column]

    def __repr__(self) -> str:
        return f"{Column(self.column)!r}.is_null()"


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Column:
    """Column in a filter; a comparison, as in `col("age") > 3`, is an `Expression`.

    Example:
        >>> col("score") >= 0.5
        col('score') >= 0.5
        >>> 3 > col("label")
        col('label') < 3
        >>> col("label").isin([1, None])
        col('label').isin([1]) | col('label').is_null()
    """

    name: str
    """Name of the column; regular expressions are not allowed."""

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return Comparison(self.name, "==", as_literal(other))

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return Comparison(self.name, "!=", as_literal(other))

    def __lt__(self, other: object) -> Expression:
        return Comparison(self.name, "<", as_literal(other))

    def __le__(self, other: object) -> Expression:
        return Comparison(self.name, "<=", as_literal(other))

    def __gt__(self, other: object) -> Expression:
        return Comparison(self.name, ">", as_literal(other))

    def __ge__(self, other: object) -> Expression:
        return Comparison(self.name, ">=", as_literal(other))

    def isin(self, values: Iterable[Any]) -> Expression:
        """Return an expression that is true if the column's value is one of `values`.

        Include None to match missing values.

        Raises:
            InvalidArgumentError: `values` is not a collection, or contains a value that no column can be compared with.
        """
        if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            raise InvalidArgumentError(
                f"values must be a list or another collection, got {values!r:.80}. Pass [{values!r:.80}] for one value"
            )
        given = list(values)
        if isinstance(values, (set, frozenset)):
            given.sort(key=lambda value: json.dumps(None if value is None else literal_json(as_literal(value))))
        found = Membership(self.name, tuple(as_literal(value) for value in given if value is not None))
        return found | self.is_null() if len(found.literals) < len(given) else found

    def is_null(self) -> Expression:
        """Return an expression that is true if the column's value is missing (null).

        NaN is not missing.
        """
        return NullTest(self.name)

    def is_valid(self) -> Expression:
        """Return an expression that is true if the column's value is present (not null).

        NaN is present.
        """
        return Not(NullTest(self.name))

    def equals(self, other: object) -> bool:
        """Return whether another object is a column with the same name.

        `==` would return an expression.
        """
        return isinstance(other, Column) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __and__(self, _: object) -> NoReturn:
        raise InvalidArgumentError(_not_yet(self, "&"))

    def __or__(self, _: object) -> NoReturn:
        raise InvalidArgumentError(_not_yet(self, "|"))

    def __rand__(self, value: object) -> NoReturn:
        raise InvalidArgumentError(_not_yet(value, "&"))

    def __ror__(self, value: object) -> NoReturn:
        raise InvalidArgumentError(_not_yet(value, "|"))

    def __invert__(self) -> NoReturn:
        raise InvalidArgumentError(_not_yet(self, "~"))

    def __bool__(self) -> bool:
        raise InvalidArgumentError(_NO_TRUTH)

    def __repr__(self) -> str:
        return f"col({self.name!r})"


def col(name: str) -> Column:
    """Return a column for filter expressions.

    Use it as in `make_reader(url, filters=col("split") == "train")`.

    Raises:
        InvalidArgumentError: The name is not a str.
    """
    if not isinstance(name, str):
        raise InvalidArgumentError(f"name must be a str, got {name!r}")
    return Column(name)


def fold(expression: Expression, leaf: Callable[[Any], _Result]) -> _Result:
    """Compute a value for each comparison of an expression, and combine the values.

    Args:
        expression: Comparisons and other tests of single columns, joined by `&`, `|` and `~`.
        leaf: Function that returns the value of a test. Values are combined by `&`, `|` and `~`, as in the expression.

    Example:
        >>> sorted(fold((col("a") == 1) | (col("b") == 2), lambda leaf: {leaf.column}))
        ['a', 'b']
    """
    if isinstance(expression, And):
        return functools.reduce(operator.and_, (fold(part, leaf) for part in expression.parts))
    if isinstance(expression, Or):
        return functools.reduce(operator.or_, (fold(part, leaf) for part in expression.parts))
    if isinstance(expression, Not):
        return operator.invert(fold(expression.part, leaf))  # type: ignore[arg-type]
    return leaf(expression)
