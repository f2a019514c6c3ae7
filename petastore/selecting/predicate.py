"""User-defined predicates: evaluate a Python function on decoded rows.

```python
class LongEnough:
    def get_fields(self):            # names of the fields that it needs
        return {"frames"}
    def do_include(self, values):    # one row, as a dict of these fields
        return len(values["frames"]) >= 16
```

`do_include_batch(columns)`, if defined, receives whole columns instead and returns booleans. Predicates with equal
`cache_key()` must select the same rows, because the selected rows are cached by this key. In a batch reader,
`do_include` receives a pandas DataFrame and returns a boolean Series, as in Petastorm. The predicates inside
`in_negate` and `in_reduce` may use either form.
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
from petastore.predicates import CombinedPredicate, told_by
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema
from petastore.schema.values import each_value

__all__ = ["RowPredicate", "parse_predicate", "predicate_columns"]

Ask: TypeAlias = Callable[[dict[str, NDArray[Any]], int], NDArray[np.bool_]]
"""Function from columns and their number of rows to booleans, shape (rows,)."""


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class RowPredicate:
    """A user-defined predicate, evaluated on the decoded rows of a row group."""

    fields: tuple[UnischemaField, ...]
    """Fields that the predicate needs, in schema order."""

    ask: Ask
    """Function that evaluates the predicate on columns, given the number of rows; it returns a mask (rows,)."""

    cache_key: str | None
    """Key of the predicate's results in the filter cache; None if they are not cached."""

    def included(self, columns: Mapping[str, Decoded], rows: int) -> NDArray[np.bool_]:
        """Return a mask of the rows that the predicate includes.

        Args:
            columns: Columns of the predicate's fields, by name.
            rows: Number of rows.

        Returns:
            Mask of shape (rows,).

        Raises:
            TransformError: The predicate raised, or did not return a bool for each row.
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
    except BaseException as problem:  # also catches `sys.exit`
        raise TransformError(f"the predicate raised {type(problem).__name__}: {problem}") from problem


def _row_answer(answer: Any) -> bool:
    if not isinstance(answer, (bool, np.bool_)):
        raise TransformError(f"predicate must return True or False for a row, got {answer!r:.80}")
    return bool(answer)


def _batch_answer(answer: Any, rows: int) -> NDArray[np.bool_]:
    found = np.asarray(answer)
    if found.shape != (rows,) or found.dtype != np.dtype(np.bool_):
        raise TransformError(
            f"predicate must return {rows:,} booleans for a batch, got {found.dtype} of shape {found.shape}. In a "
            "batch reader, do_include receives a DataFrame; a function of a row, or do_include_batch, works in every "
            "reader"
        )
    return found


def parse_predicate(predicate: Any, schema: Unischema, *, zones: Mapping[str, str] | None = None) -> RowPredicate:
    """Return the argument `predicate=` as a `RowPredicate`, and check it.

    Args:
        predicate: An object with `get_fields()` and either `do_include(values)` or `do_include_batch(columns)`,
            optionally with `cache_key()`; or a function of a dict of all fields.
        schema: Fields of the dataset.
        zones: Time zones of columns by name, for a batch reader, whose predicates receive DataFrames; None otherwise.

    Raises:
        InvalidArgumentError: The argument is not a predicate, or names an unknown field.
    """
    if isinstance(predicate, type):
        raise InvalidArgumentError(
            f"predicate must be an object, got the class {predicate.__name__}. Write {predicate.__name__}(…)"
        )
    get_fields = getattr(predicate, "get_fields", None)
    row, batch = (getattr(predicate, name, None) for name in ("do_include", "do_include_batch"))
    if not callable(get_fields) or not (callable(row) or callable(batch)):
        if not callable(predicate):
            raise InvalidArgumentError(
                "predicate must be an object with get_fields() and do_include(values), or a function of a row, got "
                f"{predicate!r:.80}"
            )
        return RowPredicate(tuple(schema), functools.partial(_ask_rows, predicate), _cache_key(predicate))
    names = _names(get_fields())
    unknown = sorted(names - set(schema.fields))
    if unknown:
        known = ", ".join(map(repr, schema.fields))
        raise InvalidArgumentError(
            f"get_fields of predicate must return names of dataset fields ({known}), got {unknown[0]!r}"
        )
    fields = tuple(field for field in schema if field.name in names)
    return RowPredicate(fields, _way_to_ask(predicate, zones), _cache_key(predicate))


def predicate_columns(predicate: Any) -> set[str]:
    """Return the names of `get_fields()`; the result is empty if the predicate does not have this method."""
    get_fields = getattr(predicate, "get_fields", None)
    return _names(get_fields()) if callable(get_fields) and not isinstance(predicate, type) else set()


def _names(found: Any) -> set[str]:
    items = [] if isinstance(found, str) else list(found)
    names = {item.name if isinstance(item, UnischemaField) else item for item in items}
    if not names or not all(isinstance(name, str) for name in names):
        raise InvalidArgumentError(f"get_fields() of the predicate must return a set of field names, got {found!r:.80}")
    return names


def _cache_key(predicate: Any) -> str | None:
    key = told_by(predicate, "cache_key")
    if key is not None and not isinstance(key, str):
        raise InvalidArgumentError(f"cache_key() of the predicate must return a str or None, got {key!r:.80}")
    return key
