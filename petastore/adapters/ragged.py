"""Ragged columns, whose arrays differ in shape, and their forms in a batch.

A form is the representation in a batch, such as a list of arrays or one padded array. This module does not depend on a
framework.
"""

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
    """Padding for ragged columns, as a value of `ragged=`.

    A column becomes one tensor. A column `<name>_lengths` has the lengths before padding, as int64, from which a mask
    can be computed. `"padded"` means `Padded(0)`.

    Example:
        >>> Padded(-100)
        Padded(value=-100)
    """

    value: Any = 0
    """Fill value; the column's dtype must be able to hold it."""


RaggedWord: TypeAlias = Literal["ragged", "auto", "list", "dense", "padded", "nested"]
"""Names of the forms (representations in a batch) of a column whose shape has None.

Each framework supports some of these forms.
"""

Form: TypeAlias = RaggedWord | Padded
"""Form (representation in a batch) of a column whose shape has None."""


def refuse_ragged_windows(reader: Any, forms: Mapping[str, Form], *, default: RaggedWord) -> None:
    """Raise an error if `ragged=` is set for a reader of windows (sequences of rows).

    The rows of one window may differ in shape, too, so they cannot be padded or stacked like single rows.

    Args:
        reader: Reader to check.
        forms: Forms other than the default, by column name.
        default: Form that the framework also supports for windows.

    Raises:
        InvalidArgumentError: The reader returns windows, and `forms` is not empty.
    """
    if forms and getattr(reader, "ngram", None) is not None:
        name, form = next(iter(forms.items()))
        raise InvalidArgumentError(
            f"ragged must be {'ragged' if default == 'ragged' else 'list'!r} for windows, because the arrays of one "
            f"window may differ in shape, got {form!r} for column {name!r}. Remove ragged=, or give the values of the "
            "column one shape in a transform_spec"
        )


def lengths_field(field: UnischemaField) -> UnischemaField:
    """Return the field of the lengths column that is added for a padded column.

    Its values are int64, one number for each variable dimension.

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
    """Return the forms that differ from the default, as a dict by column name.

    Args:
        ragged: Form for all columns, or a mapping from column name to form, where other columns get the default.
        fields: Fields of the columns.
        known: Names of forms, the default first. `"padded"` is returned as `Padded(0)`.

    Raises:
        InvalidArgumentError: The form or the column does not exist, the column has a fixed shape or values such as
            text, its dtype cannot hold the padding value, or another column has the name of the lengths column.

    Example:
        >>> fields = [UnischemaField("id", "int32"), UnischemaField("words", "int64", (None,))]
        >>> forms_of("padded", fields, known=("list", "padded"))
        {'words': Padded(value=0)}
        >>> forms_of({"id": "padded"}, fields, known=("list", "padded"))
        Traceback (most recent call last):
        petastore.errors.InvalidArgumentError: ragged must name columns with a variable shape ('words'), got 'id', whose
            values all have the shape ()
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
            f"ragged must be {', '.join(map(repr, known))} or Padded(value), for all columns or in a dict by column "
            f"name, got {form!r}"
        )
    return Padded() if form == "padded" else form


def _check_named(name: Any, fields: Mapping[str, UnischemaField], can: Mapping[str, UnischemaField]) -> None:
    if name in can:
        return
    those = ", ".join(map(repr, can)) or "none here"
    if name not in fields:
        raise InvalidArgumentError(
            f"ragged must name columns with a variable shape ({those}), got {name!r}, which does not exist"
        )
    field = fields[name]
    what = f"are {field.dtype_name}" if None in field.shape else f"all have the shape {field.shape}"
    raise InvalidArgumentError(
        f"ragged must name columns with a variable shape ({those}), got {name!r}, whose values {what}"
    )


def _check_padding(field: UnischemaField, form: Padded, fields: Mapping[str, UnischemaField]) -> None:
    lengths = lengths_field(field).name
    if lengths in fields:
        raise InvalidArgumentError(
            f"the name {lengths!r} must be free, because ragged='padded' adds a column of this name for "
            f"{field.name!r}, but it exists. Leave that column out with schema_fields, or rename it in a transform_spec"
        )
    if not holds(field.dtype, form.value):
        raise InvalidArgumentError(
            f"ragged must pad column {field.name!r} with a value that {field.dtype_name} can hold, got {form.value!r}"
        )


def holds(dtype: np.dtype[Any], value: Any) -> bool:
    """Return whether a numeric or time dtype can represent a value.

    Floating-point dtypes may round the value.

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
    # Rounding of floats is expected; storing 1.5 in an integer column is not.
    return held.ndim == 0 and (dtype.kind in "fcmM" or bool(held == value))
