"""Predicates: a user's own test of rows, on decoded values.

```python
class LongEnough:
    def get_fields(self):            # the fields that it looks at
        return {"frames"}
    def do_include(self, values):    # one row, as a dict of these fields
        return len(values["frames"]) >= 16
```

`do_include_batch(columns)`, where there is one, is given whole columns instead and returns booleans. `cache_key()`
promises that equal keys mean equal answers, so that answers are remembered. In a batch reader `do_include` is given a
pandas DataFrame and returns a boolean Series, as Petastorm's users wrote it. The parts of `in_negate` and `in_reduce`
are asked each in its own way.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from petastore.decoding.decode import Decoded
from petastore.decoding.frame import frame_answers, frame_of
from petastore.errors import InvalidArgumentError, TransformError
from petastore.predicates.combined import CombinedPredicate
from petastore.predicates.predicate import told_by
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema
from petastore.schema.values import each_value

__all__ = ["RowPredicate", "parse_predicate"]

Ask: TypeAlias = Callable[[dict[str, NDArray[Any]], int], NDArray[np.bool_]]
"""Answers, shape (rows,), for columns of that many rows."""


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class RowPredicate:
    """A predicate that fits a schema."""

    fields: tuple[UnischemaField, ...]
    """The fields that it looks at, in schema order."""

    ask: Ask
    """Asks it about many rows."""

    cache_key: str | None
    """What its answers depend on besides the data, or None where nobody knows."""

    def included(self, columns: Mapping[str, Decoded], rows: int) -> NDArray[np.bool_]:
        """Which rows it includes.

        Args:
            columns: The columns of its fields.
            rows: How many rows there are.

        Returns:
            Shape (rows,).

        Raises:
            TransformError: It raised, or returned no truth for each row.
        """
        return self.ask({name: column.rows(0, rows) for name, column in columns.items()}, rows)


def _way_to_ask(predicate: Any, zones: Mapping[str, str] | None) -> Ask:
    if isinstance(predicate, CombinedPredicate):
        return functools.partial(_ask_parts, predicate, [_way_to_ask(part, zones) for part in predicate.parts])
    batch = getattr(predicate, "do_include_batch", None)
    if callable(batch):
        return functools.partial(_ask_batch, batch)
    if zones is not None:
        return functools.partial(_ask_frame, predicate.do_include, zones)
    return functools.partial(_ask_rows, predicate.do_include)


def _ask_parts(
    predicate: CombinedPredicate, parts: Sequence[Ask], columns: dict[str, NDArray[Any]], rows: int
) -> NDArray[np.bool_]:
    return _batch_answer(_called(predicate.combined, [ask(columns, rows) for ask in parts]), rows)


def _ask_batch(function: Any, columns: dict[str, NDArray[Any]], rows: int) -> NDArray[np.bool_]:
    return _batch_answer(_called(function, columns), rows)


def _ask_frame(
    function: Any, zones: Mapping[str, str], columns: dict[str, NDArray[Any]], rows: int
) -> NDArray[np.bool_]:
    return _batch_answer(frame_answers(_called(function, frame_of(columns, zones))), rows)


def _ask_rows(function: Any, columns: dict[str, NDArray[Any]], rows: int) -> NDArray[np.bool_]:
    values = {name: each_value(column) for name, column in columns.items()}
    answers = (
        _row_answer(_called(function, {name: column[row] for name, column in values.items()})) for row in range(rows)
    )
    return np.fromiter(answers, np.bool_, count=rows)


def _called(function: Any, argument: Any) -> Any:
    try:
        return function(argument)
    except KeyboardInterrupt:
        raise
    except BaseException as problem:  # `sys.exit` too
        raise TransformError(f"the predicate raised {type(problem).__name__}: {problem}") from problem


def _row_answer(answer: Any) -> bool:
    if not isinstance(answer, (bool, np.bool_)):
        raise TransformError(f"the predicate must return True or False for a row, but it returned {answer!r:.80}")
    return bool(answer)


def _batch_answer(answer: Any, rows: int) -> NDArray[np.bool_]:
    found = np.asarray(answer)
    if found.shape != (rows,) or found.dtype != np.dtype(np.bool_):
        raise TransformError(
            f"the predicate was asked about many rows at once and must return {rows:,} booleans, but it returned "
            f"{found.dtype}{list(found.shape)}. In a batch reader, do_include is given a DataFrame; a function of a "
            "row, or do_include_batch, works in every reader"
        )
    return found


def parse_predicate(predicate: Any, schema: Unischema, *, zones: Mapping[str, str] | None = None) -> RowPredicate:
    """The predicate that `predicate=` means.

    Args:
        predicate: An object with `get_fields()` and with `do_include(values)` or `do_include_batch(columns)`, and
            perhaps `cache_key()`; or a function of a dict of all fields.
        schema: The fields that there are.
        zones: Given for a batch reader, whose predicates are asked about DataFrames: time zones of columns that have
            one, by name.

    Raises:
        InvalidArgumentError: It is none, or names a field that there is not.
    """
    if isinstance(predicate, type):
        raise InvalidArgumentError(
            f"predicate={predicate.__name__} is a class; give an object of it: {predicate.__name__}(…)"
        )
    get_fields = getattr(predicate, "get_fields", None)
    row, batch = (getattr(predicate, name, None) for name in ("do_include", "do_include_batch"))
    if not callable(get_fields) or not (callable(row) or callable(batch)):
        if not callable(predicate):
            raise InvalidArgumentError(
                f"predicate={predicate!r:.80} is none: give an object with get_fields() and do_include(values), or a "
                "function of a row"
            )
        return RowPredicate(tuple(schema), functools.partial(_ask_rows, predicate), _cache_key(predicate))
    names = _names(get_fields())
    unknown = sorted(names - set(schema.fields))
    if unknown:
        known = ", ".join(map(repr, schema.fields))
        raise InvalidArgumentError(f"the predicate looks at the field {unknown[0]!r}, but the dataset has {known}")
    fields = tuple(field for field in schema if field.name in names)
    return RowPredicate(fields, _way_to_ask(predicate, zones), _cache_key(predicate))


def _names(found: Any) -> set[str]:
    items = [] if isinstance(found, str) else list(found)
    names = {item.name if isinstance(item, UnischemaField) else item for item in items}
    if not names or not all(isinstance(name, str) for name in names):
        raise InvalidArgumentError(
            f"get_fields() of the predicate returned {found!r:.80}; it returns a set of field names"
        )
    return names


def _cache_key(predicate: Any) -> str | None:
    key = told_by(predicate, "cache_key")
    if key is not None and not isinstance(key, str):
        raise InvalidArgumentError(f"cache_key() of the predicate returned {key!r:.80}; it returns text, or None")
    return key
