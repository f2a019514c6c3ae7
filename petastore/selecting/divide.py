"""Split a predicate into parts that need different data. No I/O.

The data are partition values, statistics or rows. Parts that are equivalent to a filter are added to the filters, so
that partition values and statistics exclude row groups. Parts that use only partition columns are evaluated once for
each row group. Only the remaining parts are evaluated for each row.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from petastore.errors import InvalidArgumentError
from petastore.expressions import Expression, bind
from petastore.predicates import in_negate, in_reduce, told_by
from petastore.schema.unischema import Unischema

__all__ = ["Divided", "divide"]


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Divided:
    """A predicate, split by the data that each part needs.

    A row is included if all parts include the row.
    """

    filter: Expression | None
    """Part that is equivalent to a filter expression, or None."""

    of_partitions: Any
    """Part that uses only partition columns and is evaluated once for each row group, or None."""

    of_rows: Any
    """Remaining part, which is evaluated for each row, or None."""


def divide(predicate: Any, schema: Unischema, partition_names: Collection[str]) -> Divided:
    """Split a predicate into a filter, a part for partitions, and a part for rows.

    Args:
        predicate: Predicate whose fields are in the schema.
        schema: Fields of the dataset.
        partition_names: Names of the partition columns.

    Example:
        >>> from petastore.predicates import in_lambda, in_set
        >>> from petastore.schema import UnischemaField
        >>> schema = Unischema("s", [UnischemaField("day", "str"), UnischemaField("id", "int64")])
        >>> both = in_reduce([in_set({"mon"}, "day"), in_lambda(["id"], lambda id: id > 3)], all)
        >>> found = divide(both, schema, {"day"})
        >>> found.filter, found.of_partitions, found.of_rows.get_fields()
        (col('day').isin(['mon']) & col('day').is_valid(), None, {'id'})
    """
    filters: list[Expression] = []
    by_partitions: list[Any] = []
    by_rows: list[Any] = []
    for part in _conjuncts(predicate):
        found = _filter(part, schema)
        if found is not None:
            filters.append(found)
        elif callable(getattr(part, "get_fields", None)) and _names(part) <= set(partition_names):
            by_partitions.append(part)
        else:
            by_rows.append(part)
    joined = functools.reduce(operator.and_, filters) if filters else None
    return Divided(joined, _conjunction(by_partitions), _conjunction(by_rows))


def _conjuncts(predicate: Any) -> Iterator[Any]:
    """Yield predicates that, joined by "and", are equivalent to the given predicate."""
    if isinstance(predicate, in_reduce) and predicate.is_all:
        for part in predicate.parts:
            yield from _conjuncts(part)
    elif isinstance(predicate, in_negate) and isinstance(predicate.parts[0], in_reduce) and predicate.parts[0].is_any:
        for part in predicate.parts[0].parts:
            yield from _conjuncts(in_negate(part))
    else:
        yield predicate


def _filter(predicate: Any, schema: Unischema) -> Expression | None:
    """Return the filter expression that is equivalent to a predicate.

    Return None if no expression is equivalent, or if the column's values cannot be compared.
    """
    found = told_by(predicate, "as_expression")
    if not isinstance(found, Expression):
        return None
    try:
        bind(found, schema.fields, among="the dataset")
    except InvalidArgumentError:
        return None
    return found


def _names(predicate: Any) -> set[str]:
    fields: Iterable[Any] = predicate.get_fields()
    return {field if isinstance(field, str) else field.name for field in fields}


def _conjunction(parts: list[Any]) -> Any:
    if len(parts) < 2:
        return parts[0] if parts else None
    return in_reduce(parts, all)
