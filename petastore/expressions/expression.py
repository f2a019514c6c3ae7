"""Expressions: a filter over columns, as a frozen value that is written like Python. Pure.

```python
(col("split") == "train") & (col("score") >= 0.5) & ~col("label").isin([3, 7])
```

A comparison is *true*, *false*, or, where the value is missing, *null*. `&`, `|` and `~` are those of SQL: null unless
the other side decides. Rows are kept where the whole is true. `docs/reference/filters.md` has the tables.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import operator
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar

from petastore.errors import InvalidArgumentError
from petastore.expressions.literal import Literal, as_literal, literal_json

__all__ = ["And", "Column", "Comparison", "Expression", "Membership", "Not", "NullTest", "Or", "col", "fold"]

_Result = TypeVar("_Result")

_NO_TRUTH = (
    "a filter has no truth of its own, so `and`, `or`, `not`, `if` and `1 < col(…) < 3` do not work on it: write &, | "
    "and ~ with each comparison in parentheses, for instance (1 < col('x')) & (col('x') < 3)"
)


class Expression:
    """What a row must be like. Frozen, hashable and thread-safe.

    Two expressions are equal when they are written alike: same columns, operators and literals, in the same order.

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
        petastore.errors.InvalidArgumentError: a filter has no truth of its own, so `and`, `or`, `not`, `if` and `1 <
        col(…) < 3` do not work on it: write &, | and ~ with each comparison in parentheses, for instance (1 < col('x'))
        & (col('x') < 3)
    """

    __slots__ = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it looks at, in the order in which they are first named."""
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
        """The expression as JSON values; other expressions have other descriptions, on every platform and release."""
        raise NotImplementedError

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits that equal expressions share."""
        return hashlib.sha256(_text(self).encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def equals(self, other: object) -> bool:
        """Whether another expression is written alike."""
        return isinstance(other, Expression) and _text(self) == _text(other)

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if isinstance(other, Expression) else NotImplemented

    def __hash__(self) -> int:
        return hash(_text(self))

    def __and__(self, other: object) -> Expression:
        return And((*_parts(And, self), *_parts(And, _expression(other, "&"))))

    def __or__(self, other: object) -> Expression:
        return Or((*_parts(Or, self), *_parts(Or, _expression(other, "|"))))

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
        f"{symbol} takes comparisons, but here is {what}. & and | bind tighter than == and <, so put each "
        "comparison in parentheses"
    )


def _parts(kind: type[And | Or], expression: Expression) -> tuple[Expression, ...]:
    return expression.parts if isinstance(expression, kind) else (expression,)


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class And(Expression):
    """True where all parts are, false where one is false."""

    parts: tuple[Expression, ...]
    """At least one."""

    def describe(self) -> list[Any]:
        """`["and", part, …]`."""
        return ["and", *(part.describe() for part in self.parts)]

    def __repr__(self) -> str:
        return " & ".join(_in_parentheses(part) for part in self.parts)


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Or(Expression):
    """True where one part is, false where all are false."""

    parts: tuple[Expression, ...]
    """At least one."""

    def describe(self) -> list[Any]:
        """`["or", part, …]`."""
        return ["or", *(part.describe() for part in self.parts)]

    def __repr__(self) -> str:
        return " | ".join(_in_parentheses(part) for part in self.parts)


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Not(Expression):
    """True where the part is false, false where it is true, null where it is null."""

    part: Expression
    """What is not to be."""

    def describe(self) -> list[Any]:
        """`["not", part]`."""
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
    """A column against a literal; null where the value is missing."""

    column: str
    """Name of the column."""

    operator: str
    """One of `==`, `!=`, `<`, `<=`, `>`, `>=`."""

    literal: Literal
    """What it is compared with."""

    def describe(self) -> list[Any]:
        """`["<=", column, literal]`."""
        return [self.operator, self.column, literal_json(self.literal)]

    def __repr__(self) -> str:
        return f"{Column(self.column)!r} {self.operator} {self.literal!r}"


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Membership(Expression):
    """A column among literals: as if compared with each by `==`, joined by `|`. Null where the value is missing."""

    column: str
    """Name of the column."""

    literals: tuple[Literal, ...]
    """What it may be, in the order given; may be empty."""

    def describe(self) -> list[Any]:
        """`["in", column, [literal, …]]`."""
        return ["in", self.column, [literal_json(literal) for literal in self.literals]]

    def __repr__(self) -> str:
        return f"{Column(self.column)!r}.isin({list(self.literals)!r})"


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class NullTest(Expression):
    """True where the value is missing, else false; never null."""

    column: str
    """Name of the column."""

    def describe(self) -> list[Any]:
        """`["null", column]`."""
        return ["null", self.column]

    def __repr__(self) -> str:
        return f"{Column(self.column)!r}.is_null()"


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Column:
    """A column by name: compare it with a value to make an `Expression`.

    Example:
        >>> col("score") >= 0.5
        col('score') >= 0.5
        >>> 3 > col("label")
        col('label') < 3
        >>> col("label").isin([1, None])
        col('label').isin([1]) | col('label').is_null()
    """

    name: str
    """The column's name, taken literally."""

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
        """Whether the value is one of some: as `==` with each of them; None among them asks for missing values too.

        Raises:
            InvalidArgumentError: `values` is no collection, or holds what no column can be compared with.
        """
        if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            raise InvalidArgumentError(
                f"isin takes a list of values, but {values!r:.80} was given: put it into brackets"
            )
        given = list(values)
        if isinstance(values, (set, frozenset)):
            given.sort(key=lambda value: json.dumps(None if value is None else literal_json(as_literal(value))))
        found = Membership(self.name, tuple(as_literal(value) for value in given if value is not None))
        return found | self.is_null() if len(found.literals) < len(given) else found

    def is_null(self) -> Expression:
        """Whether the value is missing. NaN is a value."""
        return NullTest(self.name)

    def is_valid(self) -> Expression:
        """Whether the value is there. NaN is a value."""
        return Not(NullTest(self.name))

    def equals(self, other: object) -> bool:
        """Whether another column has the same name; `==` makes an expression."""
        return isinstance(other, Column) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __and__(self, _: object) -> NoReturn:
        raise InvalidArgumentError(_not_yet(self, "&"))

    def __or__(self, _: object) -> NoReturn:
        raise InvalidArgumentError(_not_yet(self, "|"))

    def __invert__(self) -> NoReturn:
        raise InvalidArgumentError(_not_yet(self, "~"))

    def __bool__(self) -> bool:
        raise InvalidArgumentError(_NO_TRUTH)

    def __repr__(self) -> str:
        return f"col({self.name!r})"


def col(name: str) -> Column:
    """A column, to be compared with values: `make_reader(url, filters=col("split") == "train")`.

    Raises:
        InvalidArgumentError: The name is no text.
    """
    if not isinstance(name, str):
        raise InvalidArgumentError(f"col takes the name of a column, but {name!r} was given")
    return Column(name)


def fold(expression: Expression, leaf: Callable[[Any], _Result]) -> _Result:
    """An expression worked out: `leaf` of each comparison, joined by the `&`, `|` and `~` of what it returns.

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
