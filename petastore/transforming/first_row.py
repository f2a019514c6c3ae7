"""What the function of a transform makes of the first row, where nobody described it by `edit_fields`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

import numpy as np

from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema
from petastore.transforming.random_generators import RowGenerators
from petastore.transforming.transform import Takes, TransformSpec, edit_field

__all__ = ["SHOWN", "is_described", "settled", "showing"]

SHOWN: Final = Unischema("shown", [UnischemaField("shown", np.str_)])
"""What comes of a transform that only shows: for each name, in JSON, what a value is."""

_WORDS: Final[Mapping[type, Any]] = {str: np.str_, bytes: np.bytes_, Decimal: Decimal}
"""Values that no array holds, and what their fields say."""


def is_described(spec: TransformSpec) -> bool:
    """Whether it is known what comes of a transform: it has `edit_fields`, if it be none, or no function.

    Example:
        >>> is_described(TransformSpec(dict)), is_described(TransformSpec(dict, edit_fields=[]))
        (False, True)
    """
    return spec.func is None or spec.edit_fields is not None


def showing(spec: TransformSpec, takes: Takes) -> TransformSpec:
    """A transform of one row that tells what the function of another makes of it; its schema is `SHOWN`.

    It runs wherever the other does: in this process, or in one of its own.

    Args:
        spec: The other; it has a function.
        takes: What that function takes.
    """
    return TransformSpec(_Shows(spec.func, takes), takes=takes, rng=spec.rng)  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True)
class _Shows:
    func: Callable[..., Any]
    takes: Takes

    def __call__(self, argument: Any, **generators: np.random.Generator | RowGenerators) -> Any:
        result = self.func(argument, **generators)
        if self.takes == "row":
            return {"shown": _in_words(dict(result))}
        if self.takes == "columns":
            return {"shown": [_in_words({name: column[0] for name, column in result.items()})]}
        shown = _in_words({name: result[name].iloc[0] for name in result.columns})
        return type(result)({"shown": [shown]})


def _in_words(values: Mapping[str, Any]) -> str:
    return json.dumps({name: _what(value) for name, value in values.items()})


def _what(value: Any) -> list[Any] | None:
    """`[dtype, shape, whether the value says so itself]`; None where a value tells nothing.

    A number of Python's own has no width, so that of its field is as good.
    """
    word = next((kind.__name__ for kind in _WORDS if isinstance(value, kind)), None)
    if word is not None:
        return [word, [], True]
    try:
        array = np.asarray(value)
    except Exception:  # noqa: BLE001 - somebody's own class may raise anything
        return None
    if array.dtype.kind not in "biufcmM":
        return None
    return [array.dtype.str, list(array.shape), hasattr(value, "dtype")]


def settled(spec: TransformSpec, before: Unischema, shown: str) -> TransformSpec:
    """Return the same transform with `edit_fields`: what the first row shows of all fields, which keep their order.

    Columns that the function adds follow. They are not nullable: a later row without a value is an error. A column is
    left out whose first value does not tell its type; the first batch raises an error that names it then.

    Args:
        spec: The transform, without `edit_fields`.
        before: The schema before it.
        shown: What `showing` returned for the first row.

    Example:
        >>> before = Unischema("s", [UnischemaField("x", "int64")])
        >>> spec = TransformSpec(lambda row: {"x": row["x"] / 2, "y": np.float32(row["x"])})
        >>> settled(spec, before, '{"x": ["<f8", [], true], "y": ["<f4", [], true]}').edit_fields
        (UnischemaField('x', float64), UnischemaField('y', float32))
    """
    found = {name: what for name, what in json.loads(shown).items() if what is not None}
    kept = [field for field in before if field.name not in (spec.removed_fields or ())]
    fields = [_as_shown(field, *found[field.name]) if field.name in found else field for field in kept]
    added = [_added(name, *what) for name, what in found.items() if name not in before]
    return dataclasses.replace(spec, edit_fields=[*fields, *added])


def _added(name: str, word: str, shape: list[int], _: bool) -> UnischemaField:
    of_no_array = next((numpy_dtype for kind, numpy_dtype in _WORDS.items() if kind.__name__ == word), None)
    return edit_field(name, np.dtype(word) if of_no_array is None else of_no_array, shape)


def _as_shown(field: UnischemaField, word: str, shape: list[int], says_so: bool) -> UnischemaField:
    of_no_array = next((numpy_dtype for kind, numpy_dtype in _WORDS.items() if kind.__name__ == word), None)
    if of_no_array is not None:
        return field if field.numpy_dtype is of_no_array else edit_field(field.name, of_no_array, (), field.nullable)
    dtype = np.dtype(word)
    fits = field.fits(tuple(shape))
    is_time = field.is_scalar and field.dtype.kind in "mM"
    if fits and (dtype == field.dtype or is_time or not (says_so or not np.can_cast(dtype, field.dtype, "same_kind"))):
        return field
    return edit_field(field.name, dtype, field.shape if fits else shape, field.nullable)
