"""Columns of arrays whose shapes differ: which form each of them has in a batch. Knows no framework."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from petastore.errors import InvalidArgumentError
from petastore.schema.field import UnischemaField

__all__ = ["Form", "Padded", "RaggedWord", "forms_of", "holds", "lengths_field", "refuse_ragged_windows"]


@dataclasses.dataclass(frozen=True, slots=True)
class Padded:
    """Arrays of different shapes as one, filled up with a value; a column `<name>_lengths` says how much is real.

    A form of `ragged=`; `"padded"` means `Padded(0)`.

    Example:
        >>> Padded(-100)
        Padded(value=-100)
    """

    value: Any = 0
    """What stands where a cell has nothing; the column's dtype must hold it."""


RaggedWord: TypeAlias = Literal["ragged", "auto", "list", "dense", "padded", "nested"]
"""What becomes of shapes with None, in a word; frameworks have some of them."""

Form: TypeAlias = RaggedWord | Padded
"""What becomes of a column whose shape has None."""


def refuse_ragged_windows(reader: Any, forms: Iterable[str], *, instead: str) -> None:
    """Refuses forms for columns of windows: the rows of one window may differ in shape, too.

    Args:
        reader: What is to be refused where it reads windows.
        forms: Names of the columns that would have one.
        instead: What to do.

    Raises:
        InvalidArgumentError: It reads windows, and a column would have a form.
    """
    names = list(forms)
    if names and getattr(reader, "ngram", None) is not None:
        raise InvalidArgumentError(
            f"column {names[0]!r} has a free shape, and each window has several rows of it: {instead}, or give it one "
            "shape in a transform_spec"
        )


def lengths_field(field: UnischemaField) -> UnischemaField:
    """The column that says how much of a padded one is real: int64, one number for each free dimension.

    Example:
        >>> lengths_field(UnischemaField("track", "float32", (None, 2)))
        UnischemaField('track_lengths', int64)
        >>> lengths_field(UnischemaField("page", "uint8", (None, None, 3)))
        UnischemaField('page_lengths', int64, (2,))
    """
    free = field.shape.count(None)
    return UnischemaField(f"{field.name}_lengths", np.int64, () if free == 1 else (free,))


def forms_of(
    ragged: Form | Mapping[str, Form], fields: Iterable[UnischemaField], *, known: Sequence[RaggedWord]
) -> dict[str, Form]:
    """The form of each column of free shape for which another one than the default was asked.

    Args:
        ragged: A form for all of them, or a mapping from column name to form; what it does not name has the default.
        fields: The columns.
        known: Names of forms, the default first. `"padded"` comes out as `Padded(0)`.

    Raises:
        InvalidArgumentError: No such form or column, a column that has no free dimension or whose values are no numbers
            and no times, a value that its dtype does not hold, or a column that has the name of the lengths.

    Example:
        >>> fields = [UnischemaField("id", "int32"), UnischemaField("words", "int64", (None,))]
        >>> forms_of("padded", fields, known=("list", "padded"))
        {'words': Padded(value=0)}
        >>> forms_of({"id": "padded"}, fields, known=("list", "padded"))
        Traceback (most recent call last):
        petastore.errors.InvalidArgumentError: ragged= names the column 'id', whose values all have the shape (); it is
        for
            those of free shape: 'words'
    """
    by_name = {field.name: field for field in fields}
    can = {name: field for name, field in by_name.items() if None in field.shape and field.dtype != np.dtype(object)}
    if isinstance(ragged, Mapping):
        for name in ragged:
            _check_named(name, by_name, can)
        asked = {name: _form(form, known) for name, form in ragged.items()}
    else:
        asked = dict.fromkeys(can, _form(ragged, known))
    forms = {name: form for name, form in asked.items() if form != known[0]}
    for name, form in forms.items():
        if isinstance(form, Padded):
            _check_padding(can[name], form, by_name)
    return forms


def _form(form: Form, known: Sequence[RaggedWord]) -> Form:
    if isinstance(form, Padded):
        return form
    if not isinstance(form, str) or form not in known:
        raise InvalidArgumentError(
            f"ragged={form!r} is no form of a column of free shape; forms are {', '.join(map(repr, known))} and "
            "Padded(value), for all columns or in a dict by column name"
        )
    return Padded() if form == "padded" else form


def _check_named(name: Any, fields: Mapping[str, UnischemaField], can: Mapping[str, UnischemaField]) -> None:
    if name in can:
        return
    those = ", ".join(map(repr, can)) or "none here"
    if name not in fields:
        raise InvalidArgumentError(
            f"ragged= names the column {name!r}, which there is not; it is for those of free shape: {those}"
        )
    field = fields[name]
    what = f"are {field.dtype_name}" if None in field.shape else f"all have the shape {field.shape}"
    raise InvalidArgumentError(
        f"ragged= names the column {name!r}, whose values {what}; it is for those of free shape: {those}"
    )


def _check_padding(field: UnischemaField, form: Padded, fields: Mapping[str, UnischemaField]) -> None:
    lengths = lengths_field(field).name
    if lengths in fields:
        raise InvalidArgumentError(
            f"ragged='padded' of {field.name!r} adds a column {lengths!r}, but there is one already; leave it out with "
            "schema_fields, or rename it in a transform_spec"
        )
    if not holds(field.dtype, form.value):
        raise InvalidArgumentError(
            f"ragged= pads the column {field.name!r} with {form.value!r}, which is no {field.dtype_name}"
        )


def holds(dtype: np.dtype[Any], value: Any) -> bool:
    """Whether a dtype of numbers or times has a value; floating point may round it.

    Example:
        >>> holds(np.dtype("int8"), 127), holds(np.dtype("int8"), 128), holds(np.dtype("int8"), 1.5)
        (True, False, False)
    """
    if isinstance(value, (str, bytes)):
        return False
    try:
        held = np.array(value, dtype)
    except (TypeError, ValueError, OverflowError):
        return False
    # Floating point rounds, and that is no surprise; 1.5 as an integer, would be one.
    return held.ndim == 0 and (dtype.kind in "fcmM" or bool(held == value))
