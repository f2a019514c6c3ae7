"""TransformSpec: a user's function on rows or DataFrames, and the schema after it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from petastore.errors import MissingExtraError, RequestError, TransformError
from petastore.readers.decoded import Decoded, empty_column
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema

__all__ = ["Transform", "TransformSpec", "edit_field", "transform_columns", "transform_schema"]

Transform: TypeAlias = Callable[
    [dict[str, Decoded], NDArray[np.int64]], "dict[str, Decoded] | Future[dict[str, Decoded]]"
]
"""Makes of the columns of a span, and where its batches begin, the columns after a transform; they are a new dict."""


def edit_field(name: str, numpy_dtype: Any, shape: Sequence[int | None], nullable: bool = False) -> UnischemaField:
    """A field that a transform adds or changes.

    Example:
        >>> edit_field("half", "float32", (14, 14))
        UnischemaField('half', float32, (14, 14))
    """
    return UnischemaField(name, numpy_dtype, tuple(shape), None, nullable)


@dataclasses.dataclass(frozen=True)
class TransformSpec:
    """A function that workers apply after decoding, and what it does to the schema.

    With `make_reader` the function takes one row as a dict and returns a dict; with `make_batch_reader` it takes and
    returns a pandas DataFrame of one batch. It must keep the number of rows: that is what keeps ranks in step.

    Example:
        >>> spec = TransformSpec(lambda row: {"x": row["x"] / 2}, edit_fields=[("x", np.float64, (), False)])
        >>> transform_schema(Unischema("s", [UnischemaField("x", "int64"), UnischemaField("y", "str")]), spec)
        Unischema('s_transformed', [
          UnischemaField('y', str),
          UnischemaField('x', float64),
        ])
    """

    func: Callable[[Any], Any] | None = None
    """The function; None only adds, removes or selects fields. It runs in worker threads, several at a time, or, with
    `reader_pool_type="process"`, in worker processes, which must be able to import it."""

    edit_fields: Iterable[UnischemaField | tuple[str, Any, Sequence[int | None], bool]] | None = None
    """Fields that the function adds or changes, as fields or `(name, numpy_dtype, shape, nullable)`; they go last."""

    removed_fields: Iterable[str] | None = None
    """Names of fields that are gone afterwards."""

    selected_fields: Iterable[str] | None = None
    """Names of the fields that stay, in this order. Not together with `removed_fields`."""

    def __post_init__(self) -> None:
        if self.removed_fields is not None and self.selected_fields is not None:
            raise RequestError("TransformSpec takes removed_fields or selected_fields, not both")
        edited = tuple(
            field if isinstance(field, UnischemaField) else edit_field(*field) for field in self.edit_fields or ()
        )
        object.__setattr__(self, "edit_fields", edited)
        object.__setattr__(self, "removed_fields", tuple(self.removed_fields or ()))
        selected = None if self.selected_fields is None else tuple(self.selected_fields)
        object.__setattr__(self, "selected_fields", selected)


def transform_schema(schema: Unischema, transform_spec: TransformSpec) -> Unischema:
    """The schema after a transform, named `<name>_transformed`.

    Raises:
        RequestError: `selected_fields` or `removed_fields` name a field that there is not.
    """
    edited = {field.name: field for field in transform_spec.edit_fields or () if isinstance(field, UnischemaField)}
    fields = {field.name: field for field in schema if field.name not in edited} | edited
    for name in (*(transform_spec.removed_fields or ()), *(transform_spec.selected_fields or ())):
        if name not in fields and name not in schema:
            known = ", ".join(map(repr, fields))
            raise RequestError(f"TransformSpec names the field {name!r}, but after it there are {known}")
    if transform_spec.selected_fields is not None:
        kept = [fields[name] for name in transform_spec.selected_fields]
    else:
        kept = [field for name, field in fields.items() if name not in (transform_spec.removed_fields or ())]
    # What comes out of a transform is decoded: no codec applies any more.
    return Unischema(f"{schema.name}_transformed", [dataclasses.replace(field, codec=None) for field in kept])


def transform_columns(
    columns: dict[str, Decoded], offsets: NDArray[np.int64], schema: Unischema, spec: TransformSpec, *, batched: bool
) -> dict[str, Decoded]:
    """The columns of a span after a transform.

    Args:
        columns: The columns before.
        offsets: Where batches begin, shape (batches + 1,); with `batched`, each is one call of the function.
        schema: The schema after the transform.
        spec: The transform.
        batched: Whether the function takes a DataFrame of a batch, or else one row.

    Raises:
        TransformError: The function raised, or gave what `edit_fields` does not promise.
    """
    if spec.func is None:
        missing = [field.name for field in schema if field.name not in columns]
        if missing:
            raise TransformError(f"edit_fields adds {missing}, but there is no func that would make them")
        return {field.name: columns[field.name] for field in schema}
    rows = int(offsets[-1])
    if batched:
        results = [
            _frame_values(spec.func, columns, range(first, stop), schema)
            for first, stop in itertools.pairwise(offsets.tolist())
        ]
        values = {field.name: [value for result in results for value in result[field.name]] for field in schema}
    else:
        values = _row_values(spec.func, columns, rows, schema)
    return {field.name: _stacked(values[field.name], field, rows) for field in schema}


def _row_values(
    func: Callable[[Any], Any], columns: dict[str, Decoded], rows: int, schema: Unischema
) -> dict[str, list[Any]]:
    values: dict[str, list[Any]] = {field.name: [] for field in schema}
    for row in range(rows):
        arguments = {name: _value(column, row) for name, column in columns.items()}
        result = _called(func, arguments)
        if not isinstance(result, dict):
            raise TransformError(f"the transform must return a dict, but it returned {type(result).__name__}")
        _check_names(result, schema)
        for name, of_name in values.items():
            of_name.append(result[name])
    return values


def _value(column: Decoded, row: int) -> Any:
    return None if column.missing is not None and column.missing[row] else column.values[row]


def _frame_values(
    func: Callable[[Any], Any], columns: dict[str, Decoded], rows: range, schema: Unischema
) -> dict[str, list[Any]]:
    try:
        import pandas as pd
    except ImportError:
        raise MissingExtraError("a transform of make_batch_reader", package="pandas", extra="spark") from None
    series = {name: _series(column, rows) for name, column in columns.items()}
    result = _called(func, pd.DataFrame(series))
    if not isinstance(result, pd.DataFrame):
        raise TransformError(f"the transform must return a DataFrame, but it returned {type(result).__name__}")
    _check_names(result, schema)
    if len(result) != len(rows):
        raise TransformError(
            f"the transform was given {len(rows):,} rows and returned {len(result):,}; it must keep their number, "
            "or ranks would get different numbers of batches"
        )
    return {field.name: list(result[field.name]) for field in schema}


def _series(column: Decoded, rows: range) -> Any:
    values = column.values[rows.start : rows.stop]
    if column.missing is not None and column.missing[rows.start : rows.stop].any():
        return [_value(column, row) for row in rows]
    return list(values) if values.ndim > 1 else values


def _called(func: Callable[[Any], Any], argument: Any) -> Any:
    try:
        return func(argument)
    except Exception as problem:
        raise TransformError(f"the transform raised {type(problem).__name__}: {problem}") from problem


def _check_names(result: Any, schema: Unischema) -> None:
    lacking = [field.name for field in schema if field.name not in result]
    if lacking:
        raise TransformError(
            f"the transform returned {', '.join(map(repr, result))}, but the schema after it also has {lacking}; "
            "return them, or name them in removed_fields"
        )


def _stacked(values: list[Any], field: UnischemaField, rows: int) -> Decoded:
    missing = np.fromiter((value is None for value in values), dtype=np.bool_, count=rows)
    if missing.any() and not field.nullable:
        raise TransformError(f"the transform gave None for {field.name!r}, which edit_fields says is not nullable")
    out = empty_column(field, rows)
    if out.dtype == np.dtype(object):
        for row, value in enumerate(values):
            out[row] = value if value is None or field.is_scalar else _checked_value(value, field)
        return Decoded(out, None)
    for row, value in enumerate(values):
        if not missing[row]:
            out[row] = _checked_value(value, field)
    out[missing] = np.zeros((), out.dtype)
    return Decoded(out, missing if missing.any() else None)


def _checked_value(value: Any, field: UnischemaField) -> NDArray[Any]:
    array = np.asarray(value)
    fits = len(array.shape) == len(field.shape) and all(
        declared in (None, size) for declared, size in zip(field.shape, array.shape, strict=True)
    )
    is_object = field.dtype == np.dtype(object)
    if not fits or not (is_object or np.can_cast(array.dtype, field.dtype, casting="same_kind")):
        raise TransformError(
            f"the transform gave {field.name!r} as {array.dtype}{list(array.shape)}, but the schema after it says "
            f"{field.dtype_name}{list(field.shape)}; describe the change in edit_fields"
        )
    return array if is_object else array.astype(field.dtype, copy=False)
