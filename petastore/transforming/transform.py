"""TransformSpec: a user's function on rows, DataFrames or columns, and the schema after it."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from petastore.decoding.decoded import Decoded
from petastore.decoding.frame import frame_of
from petastore.errors import InvalidArgumentError, MissingExtraError, TransformError
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema
from petastore.transforming.results import Asked, columns_of_arrays, columns_of_frame, columns_of_rows, function_name

__all__ = [
    "AnyTransform",
    "Takes",
    "Transform",
    "TransformSpec",
    "as_transform_spec",
    "edit_field",
    "schema_after",
    "takes_frames",
    "transform_columns",
    "transform_schema",
]

Takes: TypeAlias = Literal["row", "dataframe", "columns"]
"""What the function of a transform takes and returns, in a word; see `TransformSpec.takes`."""

Transform: TypeAlias = Callable[..., "dict[str, Decoded] | Future[dict[str, Decoded]]"]
"""`transform(columns, offsets)` makes of the columns of a span, and where its batches begin, the columns after a
transform; they are a new dict. One whose function draws random numbers also takes `keys=`: of each row, shape (rows,
2)."""


def as_transform_spec(transform: AnyTransform | None) -> TransformSpec | None:
    """Return the TransformSpec of what a user gave as `transform_spec`: a function stands for one with nothing else.

    Raises:
        InvalidArgumentError: `transform` is neither a TransformSpec nor a function.

    Example:
        >>> as_transform_spec(dict).func
        <class 'dict'>
    """
    if transform is None or isinstance(transform, TransformSpec):
        return transform
    if not callable(transform):
        raise InvalidArgumentError(
            f"transform_spec must be a TransformSpec or a function, got {transform!r:.100}. Pass "
            "petastore.TransformSpec(func, …)"
        )
    return TransformSpec(transform)


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

    ```text
    takes=         it is given, and returns            of                                       missing values
    "row"          a dict of values                    one row                                  None
    "dataframe"    a pandas DataFrame                  all rows of a batch (1)                  what pandas has for them
    "columns"      a dict of arrays (rows, *shape)     all rows of a batch (1)                  masked; None in objects
    None           "row" with `make_reader`, "dataframe" with `make_batch_reader`, as in Petastorm
    ```

    (1) With `make_reader`: of as many consecutive rows as are at hand, so what becomes of a row must depend on nothing
    but this row. "columns" then does the same as "row", without a call for each.

    It must keep the number of rows: that is what keeps ranks in step. In DataFrames integers and booleans with missing
    values are pandas' nullable types, floats have NaN, times NaT, and arrays are objects; instants have the time zone
    that they are stored with, and may be returned in any. What pandas calls missing in what is returned is missing; but
    NaN in a column that was there before is missing where it was missing before, and a number elsewhere. In dicts of
    columns, `numpy.ma.MaskedArray` is what a column with missing values is; `numpy.ma.filled(column, 0)` fills those of
    any column. Text and arrays of free shape are object arrays.

    Example:
        >>> spec = TransformSpec(lambda row: {"x": row["x"] / 2}, edit_fields=[("x", np.float64, (), False)])
        >>> transform_schema(Unischema("s", [UnischemaField("x", "int64"), UnischemaField("y", "str")]), spec)
        Unischema('s_transformed', [
          UnischemaField('y', str),
          UnischemaField('x', float64),
        ])
        >>> of_columns = TransformSpec(lambda columns: {"x": columns["x"] / 2}, spec.edit_fields, takes="columns")
    """

    func: Callable[..., Any] | None = None
    """The function; it runs in worker threads, several at a time, or, with `reader_pool_type="process"`, in worker
    processes: they import it, or, where they cannot, are sent it with all that it names. None removes and selects
    fields, and gives those in `edit_fields` a new dtype or shape: lists that are all of one length become one array by
    `("track", "float32", (3,), False)`."""

    edit_fields: Iterable[UnischemaField | tuple[str, Any, Sequence[int | None], bool]] | None = None
    """Fields that the function adds or changes, as fields or `(name, numpy_dtype, shape, nullable)`; they go last, and
    what it gives is held against them. None lets the first row decide, as files have them, of those that are read: it
    is read, and the function called with it, when the reader is opened; what contradicts it later is an error. Columns
    that the function adds are described by it, too, as not nullable. An empty list says that nothing changes, and then
    nothing is read before the first batch. A column that is added without being described is an error."""

    removed_fields: Iterable[str] | None = None
    """Names of fields that are gone afterwards."""

    selected_fields: Iterable[str] | None = None
    """Names of the fields that stay, in this order. Not together with `removed_fields`."""

    takes: Takes | None = dataclasses.field(default=None, kw_only=True)
    """What the function takes and returns: `"row"`, `"dataframe"` or `"columns"`; None is the reader's own form."""

    rng: str | None = dataclasses.field(default=None, kw_only=True)
    """Name of the keyword argument by which the function is given its random generator, such as `"rng"`; None gives
    none. A function of rows gets a `numpy.random.Generator` for its row; one of DataFrames or columns gets a sequence
    of them, one for each row. They follow from seed, epoch and row alone: not from pool, workers, ranks, batch size, or
    where a training run was resumed."""

    def __post_init__(self) -> None:
        if self.takes is not None and self.takes not in get_args(Takes):
            raise InvalidArgumentError(
                f"takes={self.takes!r} is nothing that a function can take; there are "
                f"{', '.join(map(repr, get_args(Takes)))}, and None for what Petastorm has"
            )
        if self.rng is not None:
            _check_keyword(self.func, self.rng)
        removed = tuple(self.removed_fields or ())
        if removed and self.selected_fields is not None:
            raise InvalidArgumentError("TransformSpec takes removed_fields or selected_fields, not both")
        if self.edit_fields is not None:
            edited = (field if isinstance(field, UnischemaField) else edit_field(*field) for field in self.edit_fields)
            object.__setattr__(self, "edit_fields", tuple(edited))
        object.__setattr__(self, "removed_fields", removed)
        selected = None if self.selected_fields is None else tuple(self.selected_fields)
        object.__setattr__(self, "selected_fields", selected)


def _check_keyword(func: Callable[..., Any] | None, rng: object) -> None:
    """Refuses a name of a keyword argument that a function does not take."""
    if not isinstance(rng, str) or not rng.isidentifier():
        raise InvalidArgumentError(
            f"rng must be the name of a keyword argument of the function, such as 'rng', got {rng!r}"
        )
    if func is None:
        raise InvalidArgumentError(f"rng must be None for a TransformSpec without a function, got {rng!r}. Give func")
    try:
        parameters = inspect.signature(func).parameters.values()
    except (TypeError, ValueError):  # a function of C: whether it takes the argument shows when it is called
        return
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    if not any(
        one.kind is inspect.Parameter.VAR_KEYWORD or (one.name == rng and one.kind in named) for one in parameters
    ):
        raise InvalidArgumentError(
            f"rng must be the name of a keyword argument of {function_name(func)}, got {rng!r}. Write the function as "
            f"func(row, *, {rng})"
        )


AnyTransform: TypeAlias = TransformSpec | Callable[..., Any]
"""Type of `transform_spec=`: a TransformSpec, or its function."""


def transform_schema(schema: Unischema, transform_spec: TransformSpec) -> Unischema:
    """The schema after a transform, named `<name>_transformed`.

    Raises:
        InvalidArgumentError: `selected_fields` names a field that there is not.

    Warns:
        UserWarning: `removed_fields` does: nothing is removed then, as in Petastorm.
    """
    known = {field.name: field for field in (*schema, *_edited(transform_spec))}
    unknown = [name for name in transform_spec.removed_fields or () if name not in known]
    if unknown:
        warnings.warn(
            f"removed_fields of a TransformSpec names {', '.join(map(repr, unknown))}, but there are only "
            f"{', '.join(map(repr, known))}",
            UserWarning,
            stacklevel=2,
        )
    return schema_after(schema, transform_spec)


def schema_after(schema: Unischema, transform_spec: TransformSpec) -> Unischema:
    """The same, for whoever asks again: nobody is warned.

    Raises:
        InvalidArgumentError: `selected_fields` names a field that there is not.
    """
    edited = {field.name: field for field in _edited(transform_spec)}
    fields = {field.name: field for field in schema if field.name not in edited} | edited
    for name in transform_spec.selected_fields or ():
        if name not in fields:
            raise InvalidArgumentError(
                f"TransformSpec names the field {name!r}, but after it there are {', '.join(map(repr, fields))}"
            )
    if transform_spec.selected_fields is not None:
        kept = [fields[name] for name in transform_spec.selected_fields]
    else:
        kept = [field for name, field in fields.items() if name not in (transform_spec.removed_fields or ())]
    # What comes out of a transform is decoded: no codec applies any more.
    return Unischema(f"{schema.name}_transformed", [dataclasses.replace(field, codec=None) for field in kept])


def _edited(spec: TransformSpec) -> list[UnischemaField]:
    """What `edit_fields` names; its constructor made fields of all."""
    return [field for field in spec.edit_fields or () if isinstance(field, UnischemaField)]


def takes_frames(spec: TransformSpec, *, batched: bool) -> bool:
    """Whether the function of a transform is given DataFrames."""
    return (spec.takes or ("dataframe" if batched else "row")) == "dataframe"


def transform_columns(
    columns: dict[str, Decoded],
    offsets: NDArray[np.int64],
    schema: Unischema,
    spec: TransformSpec,
    *,
    batched: bool,
    zones: Mapping[str, str] = MappingProxyType({}),
    keys: NDArray[np.uint64] | None = None,
) -> dict[str, Decoded]:
    """The columns of a span after a transform.

    Args:
        columns: The columns before.
        offsets: Where batches begin, shape (batches + 1,); with `batched`, each is one call of the function, unless
            it takes rows.
        schema: The schema after the transform.
        spec: The transform.
        batched: Whether the reader gives batches, or else rows.
        zones: Time zones that instants have in DataFrames, by the names of columns.
        keys: The random keys of the rows, shape (rows, 2), for a transform with `rng`.

    Raises:
        TransformError: The function raised, or gave what `edit_fields` does not promise.
    """
    if spec.func is None:
        return _as_declared(columns, int(offsets[-1]), schema, spec)
    call = _CALLS[spec.takes or ("dataframe" if batched else "row")]
    left_out = None if spec.selected_fields is not None else frozenset(spec.removed_fields or ())
    borders = offsets.tolist() if batched and call is not _of_rows else [0, int(offsets[-1])]
    made = [
        call(Asked(spec.func, columns, first, stop - first, schema, zones, left_out, spec.rng, keys))
        for first, stop in itertools.pairwise(borders)
    ]
    return made[0] if len(made) == 1 else {field.name: _joined([part[field.name] for part in made]) for field in schema}


def _as_declared(columns: dict[str, Decoded], rows: int, schema: Unischema, spec: TransformSpec) -> dict[str, Decoded]:
    """The columns where there is no function: those that `edit_fields` names, as what it says that they are."""
    lacking = [field.name for field in schema if field.name not in columns]
    if lacking:
        raise TransformError(f"edit_fields adds {lacking}, but there is no func that would make them")
    edited = {field.name for field in _edited(spec)}
    declared = Unischema(schema.name, [field for field in schema if field.name in edited])
    asked = Asked(None, columns, 0, rows, declared, {})
    made = columns_of_arrays(asked, {name: column.rows(0, rows) for name, column in columns.items()})
    return {field.name: made.get(field.name, columns[field.name]) for field in schema}


def _of_rows(asked: Asked) -> dict[str, Decoded]:
    names = list(asked.columns)
    results = []
    stop = asked.first + asked.rows
    columns = [column.each(asked.first, stop) for column in asked.columns.values()]
    for row, values in enumerate(zip(*columns, strict=True)):
        result = asked.call(dict(zip(names, values, strict=True)), row)
        if not isinstance(result, dict):
            raise asked.error(f"must return a dict, but it returned {type(result).__name__}", row)
        asked.check_names(result, row)
        results.append(result)
    return columns_of_rows(asked, results)


def _of_columns(asked: Asked) -> dict[str, Decoded]:
    return columns_of_arrays(asked, asked.call(_arrays(asked)))


def _of_frame(asked: Asked) -> dict[str, Decoded]:
    try:
        frame = frame_of(_arrays(asked), asked.zones)
    except MissingExtraError:
        raise MissingExtraError("a transform that takes DataFrames", package="pandas", extra="spark") from None
    return columns_of_frame(asked, asked.call(frame))


_CALLS: Final = {"row": _of_rows, "dataframe": _of_frame, "columns": _of_columns}


def _arrays(asked: Asked) -> dict[str, NDArray[Any]]:
    """What the function is given, as arrays; masks can be written."""
    arrays = {name: column.rows(asked.first, asked.first + asked.rows) for name, column in asked.columns.items()}
    return {
        name: np.ma.MaskedArray(array.data, mask=np.array(np.ma.getmaskarray(array)))
        if isinstance(array, np.ma.MaskedArray)
        else array
        for name, array in arrays.items()
    }


def _joined(parts: list[Decoded]) -> Decoded:
    missing = None
    if any(part.missing is not None for part in parts):
        known = (np.zeros(len(part.values), np.bool_) if part.missing is None else part.missing for part in parts)
        missing = np.concatenate(list(known))
    return Decoded(np.concatenate([part.values for part in parts]), missing)
