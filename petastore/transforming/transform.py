"""TransformSpec: a user's function on rows, DataFrames or columns, and the schema of its result."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from petastore.decoding.decode import Decoded, masks_of
from petastore.decoding.frame import frame_of
from petastore.errors import InvalidArgumentError, MissingExtraError, TransformError
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema
from petastore.transforming.random_generators import RowGenerators
from petastore.transforming.results import (
    FunctionCall,
    columns_of_arrays,
    columns_of_frame,
    columns_of_rows,
    function_name,
    numpy_dtype_of,
)

__all__ = [
    "SHOWN",
    "AnyTransform",
    "Takes",
    "Transform",
    "TransformSpec",
    "as_transform_spec",
    "edit_field",
    "is_described",
    "schema_after",
    "settled",
    "showing",
    "takes_frames",
    "transform_columns",
    "transform_schema",
]


Takes: TypeAlias = Literal["row", "dataframe", "columns"]
"""Argument and result types of a transform's function; see `TransformSpec.takes`."""

Transform: TypeAlias = Callable[..., "dict[str, Decoded] | Future[dict[str, Decoded]]"]
"""Function `transform(columns, offsets)` that returns the transformed columns as a new dict, or a future of it.

`columns` are the columns of a span (consecutive batches), and `offsets` the rows at which the batches begin, with the
end. A transform with `rng` also takes `keys=`, the random keys of the rows, shape (rows, 2)."""


def as_transform_spec(transform: AnyTransform | None) -> TransformSpec | None:
    """Return the user's `transform_spec` as a TransformSpec; a function becomes its `func`.

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
    """Return a field that a transform adds or changes.

    Example:
        >>> edit_field("half", "float32", (14, 14))
        UnischemaField('half', float32, (14, 14))
    """
    return UnischemaField(name, numpy_dtype, tuple(shape), None, nullable)


def _as_field(given: Any) -> UnischemaField:
    if isinstance(given, UnischemaField):
        return given
    if not isinstance(given, (tuple, list)) or not 3 <= len(given) <= 4:
        raise InvalidArgumentError(
            f"edit_fields must have fields or (name, numpy_dtype, shape, nullable), got {given!r:.100}"
        )
    return edit_field(*given)


@dataclasses.dataclass(frozen=True)
class TransformSpec:
    """A transform: a function that workers apply after decoding, and its changes to the schema.

    ```text
    takes=         argument and result              covers                     missing values
    "row"          a dict of values                 one row                    None
    "dataframe"    a pandas DataFrame               all rows of a batch (1)    NA, NaN or NaT
    "columns"      a dict of arrays (rows, *shape)  all rows of a batch (1)    masked; None in object arrays
    None           as "row" in `make_reader`, as "dataframe" in `make_batch_reader` (as in Petastorm)
    ```

    (1) In `make_reader`, the function receives as many consecutive rows as are decoded together, so the result for a
    row must depend on this row alone. "columns" gives the same result as "row" without a call per row.

    The function must return as many rows as it received, so that all ranks have the same number of batches.

    In DataFrames, integers and booleans with missing values have pandas' nullable dtypes, floats have NaN, times have
    NaT, and arrays are objects. Timestamps have their stored time zone and may be returned in another. Missing values
    of the returned DataFrame are missing in the batch. One exception: in a column that the function received, NaN is a
    number, unless the value was missing in the argument.

    In dicts of columns, a column with missing values is a `numpy.ma.MaskedArray`; `numpy.ma.filled(column, 0)` fills
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
    """The function; it must be thread-safe, because several worker threads call it. With `reader_pool_type="process"`,
    worker processes import it, or receive it by pickle if they cannot. None applies no function: fields are only
    removed, selected, and cast to the dtypes and shapes of `edit_fields`. For example, `("track", "float32", (3,),
    False)` turns lists of length 3 into one array."""

    edit_fields: Iterable[UnischemaField | tuple[str, Any, Sequence[int | None], bool]] | None = None
    """Fields that the function adds or changes, as fields or `(name, numpy_dtype, shape, nullable)`. They come last in
    the schema, and results are checked against them: a number that is out of range of its dtype raises
    `TransformError`. None infers them from the first row, which is read and transformed when the reader is opened;
    added columns are then not nullable, and a row that does not match raises `TransformError`. An empty list declares
    that nothing changes, and reads no row. A column that the function adds without declaring it raises
    `TransformError`."""

    removed_fields: Iterable[str] | None = None
    """Names of fields to remove."""

    selected_fields: Iterable[str] | None = None
    """Names of the fields to keep, in this order. Cannot be combined with `removed_fields`."""

    takes: Takes | None = dataclasses.field(default=None, kw_only=True)
    """Type of the function's argument and result: `"row"`, `"dataframe"` or `"columns"`; None means the reader's
    default."""

    rng: str | None = dataclasses.field(default=None, kw_only=True)
    """Name of the function's keyword argument that receives random generators, such as `"rng"`; None passes none. A
    function of rows receives a `numpy.random.Generator`; a function of DataFrames or columns receives a sequence of
    generators, one per row. The generators depend only on the reader's seed, the epoch and the row. Augmentation is
    therefore reproducible with any pool type, batch size, and number of workers or ranks, also after a resume."""

    def __post_init__(self) -> None:
        if self.func is not None and not callable(self.func):
            raise InvalidArgumentError(f"func must be callable or None, got {self.func!r:.100}")
        for name in ("edit_fields", "removed_fields", "selected_fields"):
            fields = getattr(self, name)
            if fields is not None and (isinstance(fields, str) or not isinstance(fields, Iterable)):
                raise InvalidArgumentError(f"{name} must be a list or None, got {fields!r:.100}")
        if self.takes is not None and self.takes not in get_args(Takes):
            raise InvalidArgumentError(
                f"takes must be {', '.join(map(repr, get_args(Takes)))}, or None for Petastorm's form, got "
                f"{self.takes!r}"
            )
        if self.rng is not None:
            _check_keyword(self.func, self.rng)
        removed = tuple(self.removed_fields or ())
        if removed and self.selected_fields is not None:
            raise InvalidArgumentError("removed_fields and selected_fields must not both be given. Pass one of them")
        if self.edit_fields is not None:
            object.__setattr__(self, "edit_fields", tuple(map(_as_field, self.edit_fields)))
        object.__setattr__(self, "removed_fields", removed)
        selected = None if self.selected_fields is None else tuple(self.selected_fields)
        object.__setattr__(self, "selected_fields", selected)


def _check_keyword(func: Callable[..., Any] | None, rng: object) -> None:
    """Raise an error if a function does not accept a keyword argument.

    Args:
        func: Function of a transform.
        rng: Name of the keyword argument.

    Raises:
        InvalidArgumentError: The function is None, or lacks the argument; or `rng` is not a valid name.
    """
    if not isinstance(rng, str) or not rng.isidentifier():
        raise InvalidArgumentError(
            f"rng must be the name of a keyword argument of the function, such as 'rng', got {rng!r}"
        )
    if func is None:
        raise InvalidArgumentError(f"rng must be None for a TransformSpec without a function, got {rng!r}. Give func")
    try:
        parameters = inspect.signature(func).parameters.values()
    except (TypeError, ValueError):  # a C function: only the call shows whether it takes the argument
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
"""Types accepted by `transform_spec=`: a TransformSpec, or a function."""


def transform_schema(schema: Unischema, transform_spec: TransformSpec) -> Unischema:
    """Return the schema after a transform, named `<name>_transformed`.

    Raises:
        InvalidArgumentError: `selected_fields` names an unknown field.

    Warns:
        UserWarning: `removed_fields` names an unknown field, which is ignored, as in Petastorm.
    """
    known = {field.name: field for field in (*schema, *_edited(transform_spec))}
    unknown = [name for name in transform_spec.removed_fields or () if name not in known]
    if unknown:
        warnings.warn(
            f"removed_fields of a TransformSpec must name fields ({', '.join(map(repr, known))}), got "
            f"{', '.join(map(repr, unknown))}, which have no effect",
            UserWarning,
            stacklevel=2,
        )
    return schema_after(schema, transform_spec)


def schema_after(schema: Unischema, transform_spec: TransformSpec) -> Unischema:
    """Return the schema after the transform, without warnings.

    Raises:
        InvalidArgumentError: `selected_fields` names an unknown field.
    """
    edited = {field.name: field for field in _edited(transform_spec)}
    fields = {field.name: field for field in schema if field.name not in edited} | edited
    for name in transform_spec.selected_fields or ():
        if name not in fields:
            raise InvalidArgumentError(
                f"TransformSpec must name fields that exist after the transform ({', '.join(map(repr, fields))}), got "
                f"{name!r}"
            )
    if transform_spec.selected_fields is not None:
        kept = [fields[name] for name in transform_spec.selected_fields]
    else:
        kept = [field for name, field in fields.items() if name not in (transform_spec.removed_fields or ())]
    # A transform's output is decoded: no codec applies.
    return Unischema(f"{schema.name}_transformed", [dataclasses.replace(field, codec=None) for field in kept])


def _edited(spec: TransformSpec) -> list[UnischemaField]:
    """Return `edit_fields` as a list, empty for None; the constructor has converted all items to fields."""
    return [field for field in spec.edit_fields or () if isinstance(field, UnischemaField)]


def takes_frames(spec: TransformSpec, *, batched: bool) -> bool:
    """Return whether a transform's function takes DataFrames.

    Args:
        spec: The transform; without `takes`, functions of batch readers take DataFrames.
        batched: Whether the reader yields batches instead of rows.
    """
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
    """Apply a transform to the columns of a span (consecutive batches), and return the new columns.

    Args:
        columns: Columns before the transform.
        offsets: Rows at which batches begin, and the end, shape (batches + 1,). With `batched`, the function is called
            once per batch, unless it takes single rows.
        schema: Schema after the transform.
        spec: The transform.
        batched: Whether the reader yields batches instead of rows.
        zones: Time zones of DataFrame columns, by name.
        keys: The random keys of the rows, shape (rows, 2), for a transform with `rng`.

    Raises:
        TransformError: The function raised an error, or its result does not match `edit_fields`.
    """
    if spec.func is None:
        return _as_declared(columns, int(offsets[-1]), schema, spec)
    run = _CALLS[spec.takes or ("dataframe" if batched else "row")]
    left_out = None if spec.selected_fields is not None else frozenset(spec.removed_fields or ())
    borders = offsets.tolist() if batched and run is not _of_rows else [0, int(offsets[-1])]
    made = [
        run(FunctionCall(spec.func, columns, first, stop - first, schema, zones, left_out, spec.rng, keys))
        for first, stop in itertools.pairwise(borders)
    ]
    return made[0] if len(made) == 1 else {field.name: _joined([part[field.name] for part in made]) for field in schema}


def _as_declared(columns: dict[str, Decoded], rows: int, schema: Unischema, spec: TransformSpec) -> dict[str, Decoded]:
    """Return the columns after a transform without a function: cast to the dtypes and shapes of `edit_fields`."""
    lacking = [field.name for field in schema if field.name not in columns]
    if lacking:
        raise TransformError(f"edit_fields must not add {lacking} without a func that makes them")
    edited = {field.name for field in _edited(spec)}
    declared = Unischema(schema.name, [field for field in schema if field.name in edited])
    call = FunctionCall(None, columns, 0, rows, declared)
    made = columns_of_arrays(call, {name: column.rows(0, rows) for name, column in columns.items()})
    return {field.name: made.get(field.name, columns[field.name]) for field in schema}


def _of_rows(call: FunctionCall) -> dict[str, Decoded]:
    names = list(call.columns)
    results = []
    stop = call.first + call.rows
    columns = [column.each(call.first, stop) for column in call.columns.values()]
    for row, values in enumerate(zip(*columns, strict=True)):
        result = call.run(dict(zip(names, values, strict=True)), row)
        if not isinstance(result, dict):
            raise call.error(f"must return a dict, got {type(result).__name__}", row)
        call.check_names(result, row)
        results.append(result)
    return columns_of_rows(call, results)


def _of_columns(call: FunctionCall) -> dict[str, Decoded]:
    return columns_of_arrays(call, call.run(_arrays(call)))


def _of_frame(call: FunctionCall) -> dict[str, Decoded]:
    try:
        frame = frame_of(_arrays(call), call.zones)
    except MissingExtraError:
        raise MissingExtraError("a transform that takes DataFrames", package="pandas") from None
    return columns_of_frame(call, call.run(frame))


_CALLS: Final = {"row": _of_rows, "dataframe": _of_frame, "columns": _of_columns}


def _arrays(call: FunctionCall) -> dict[str, NDArray[Any]]:
    """Return the input columns of a call as arrays, by name; masked arrays get masks that the function may change."""
    arrays = {name: column.rows(call.first, call.first + call.rows) for name, column in call.columns.items()}
    return {
        name: np.ma.MaskedArray(array.data, mask=np.array(np.ma.getmaskarray(array)))
        if isinstance(array, np.ma.MaskedArray)
        else array
        for name, array in arrays.items()
    }


def _joined(parts: list[Decoded]) -> Decoded:
    masks = masks_of(parts)
    return Decoded(np.concatenate([part.values for part in parts]), None if masks is None else np.concatenate(masks))


SHOWN: Final = Unischema("shown", [UnischemaField("shown", np.str_)])
"""Schema of the result of a `showing` transform: one text, the dtype and shape of each returned value as JSON."""

_WORDS: Final[Mapping[str, Any]] = {"str": np.str_, "bytes": np.bytes_, "Decimal": Decimal}
"""Field dtype of text, bytes and decimals, by name of the Python type."""


def is_described(spec: TransformSpec) -> bool:
    """Return whether the schema after a transform is declared: `edit_fields` is given, even empty, or `func` is None.

    Example:
        >>> is_described(TransformSpec(dict)), is_described(TransformSpec(dict, edit_fields=[]))
        (False, True)
    """
    return spec.func is None or spec.edit_fields is not None


def showing(spec: TransformSpec, takes: Takes) -> TransformSpec:
    """Return a transform that calls another transform on one row, and returns dtypes and shapes of the result as JSON.

    `settled` infers `edit_fields` from this JSON. The schema after the returned transform is `SHOWN`. The returned
    transform runs where the other transform runs: in this process, or in a worker process.

    Args:
        spec: The other transform, with a function.
        takes: Argument type of the function.
    """
    return TransformSpec(_Shows(spec.func, takes), takes=takes, rng=spec.rng)  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True)
class _Shows:
    func: Callable[..., Any]
    takes: Takes

    def __call__(self, argument: Any, **generators: np.random.Generator | RowGenerators) -> Any:
        before = self._first_values(argument)  # the function may change its argument in place
        result = self.func(argument, **generators)
        shown = _in_words(self._first_values(result), before)
        if self.takes == "row":
            return {"shown": shown}
        return {"shown": [shown]} if self.takes == "columns" else type(result)({"shown": [shown]})

    def _first_values(self, columns: Any) -> dict[str, Any]:
        if self.takes == "row":
            return dict(columns)
        if self.takes == "columns":
            return {name: _first_of_column(column) for name, column in columns.items()}
        return {name: _first_of_series(columns[name]) for name in columns.columns}


def _first_of_column(column: Any) -> Any:
    """Return the first value of an array or list; for a masked value of an array, the value under the mask.

    The value under the mask has the dtype of the column, but `numpy.ma.masked` is a float64.
    """
    is_typed = isinstance(column, np.ma.MaskedArray) and column.dtype != np.dtype(object)
    return np.ma.getdata(column)[0] if is_typed and column[0] is np.ma.masked else column[0]


def _first_of_series(series: Any) -> Any:
    """Return the first value of a pandas Series; for a Series of a NumPy dtype, a zero of this dtype.

    A missing value, such as `pandas.NA`, does not have the dtype of its Series.
    """
    dtype = numpy_dtype_of(series)
    return series.iloc[0] if dtype is None else np.zeros((), dtype)


def _in_words(values: Mapping[str, Any], before: Mapping[str, Any]) -> str:
    return json.dumps(
        {name: None if _is_unchanged(value, before.get(name)) else _what(value) for name, value in values.items()}
    )


def _is_unchanged(value: Any, before: Any) -> bool:
    """Return whether the function returned a nested list, such as a map or list of structs, unchanged."""
    return value is before and isinstance(value, (list, tuple))


def _what(value: Any) -> list[Any] | None:
    """Return `[dtype, shape, is_typed]` of a value; None unless it is text, bytes, a decimal, a number or a time.

    `is_typed` is False for Python numbers and lists of them, which have no dtype. The field then keeps its dtype, if
    the values can be cast to it.
    """
    word = next((kind.__name__ for kind in (str, bytes, Decimal) if isinstance(value, kind)), None)
    if word is not None:
        return [word, [], True]
    if value is np.ma.masked:
        return None
    try:
        array = np.asarray(value)
    except Exception:  # noqa: BLE001 - an object of the user may raise any exception
        return None
    if array.dtype.kind not in "biufcmM":
        return None
    return [array.dtype.str, list(array.shape), hasattr(value, "dtype")]


def settled(spec: TransformSpec, before: Unischema, shown: str) -> TransformSpec:
    """Return the transform with `edit_fields` inferred from its result for the first row.

    Fields keep their order, and columns that the function adds follow. Added columns are not nullable: a later row
    without a value is an error. A column is omitted if its first value does not determine a dtype; the first batch
    then raises an error that names the column.

    Args:
        spec: Transform without `edit_fields`.
        before: Schema before the transform.
        shown: Result of `showing` for the first row.

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
    return edit_field(name, _WORDS.get(word) or np.dtype(word), shape)


def _as_shown(field: UnischemaField, word: str, shape: list[int], says_so: bool) -> UnischemaField:
    if word in _WORDS:
        is_same = field.numpy_dtype is _WORDS[word]
        return field if is_same else edit_field(field.name, _WORDS[word], (), field.nullable)
    dtype = np.dtype(word)
    fits = field.fits(tuple(shape))
    is_time = field.is_scalar and field.dtype.kind in "mM"
    if fits and (dtype == field.dtype or is_time or not (says_so or not np.can_cast(dtype, field.dtype, "same_kind"))):
        return field
    return edit_field(field.name, dtype, field.shape if fits else shape, field.nullable)
