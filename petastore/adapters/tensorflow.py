"""TensorFlow: a `tf.data.Dataset` with a full `element_spec`, fed with the columns of many batches at a time.

Python hands over runs of batches, as the reader made them, and TensorFlow's own code cuts batches or rows out of them:
a function that runs for each batch, of Python or of a graph, would cost more than the batch. Aligned columns are not
copied on the way. Only ragged and padded columns, which depend on what else is in the batch, are made batch by batch.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.adapters.columns import flattened, nanoseconds, padded, present, ragged_cells
from petastore.adapters.nulls import NullColumn, nulls_of_reader
from petastore.adapters.passes import Passes
from petastore.adapters.ragged import Form, Padded, forms_of, lengths_field, refuse_ragged_windows
from petastore.adapters.runs import Handed, Run, runs_of
from petastore.errors import DecodeError, MissingExtraError, RequestError
from petastore.plan.cursor import Cursor
from petastore.plan.request import Tail, whole_number
from petastore.plan.state import dump_state
from petastore.readers.assemble import VALID_COLUMN
from petastore.schema.field import UnischemaField

try:
    import tensorflow as tf
except ImportError:
    raise MissingExtraError("petastore.adapters.tensorflow", package="tensorflow", extra="tf") from None

__all__ = ["make_tf_dataset", "state_after", "tensors_of_next", "with_signed_integers"]

_BATCHES_A_CALL = 4096
_BYTES_A_CALL = 4 * 1024 * 1024
_ROWS_A_CALL = 1024
_BYTES_OF_A_FREE_VALUE = 64 * 1024
_BYTES_OF_A_TEXT = 64
_LARGEST_BATCH = 65_536


def make_tf_dataset(
    reader: Any,
    batch_size: int | None = None,
    *,
    ragged: Form | Mapping[str, Form] = "ragged",
    nulls: Any = "error",
) -> Any:
    """The reader's rows or batches as a `tf.data.Dataset` of dicts from column name to tensor.

    One iteration gives all epochs of the reader; each further one (`repeat()`, the next epoch of `fit`) starts again
    from the first row. Two iterations at once end the older one with an error. `cardinality()` is known, unless the
    reader does not stand at its beginning (load a state before the dataset is made). A dataset of a sharded reader has
    its auto-sharding set to OFF: TensorFlow would shard what is sharded already, and drop most of it without a word.
    The prefetch that TensorFlow adds unasked is off too, since the reader works ahead by itself: after a `map` that
    takes time, add `prefetch` yourself. `state_after` says where training stands.

    ```text
    field                            batches                                rows
    numbers, booleans                (None, *shape), dtype as declared      shape
    a shape with None                RaggedTensor (None, *shape)            tensor, None where the shape is free
    text, bytes                      tf.string                              tf.string
    Decimal                          tf.string: "1.5" of 1.50               tf.string
    datetime64, timedelta64          int64 nanoseconds                      int64 nanoseconds
    missing values                   an error that names the column, or as `nulls` says
    "valid" of tail="pad"            bool (None,)                           bool ()
    ```

    Errors come out of the iterator as TensorFlow's own, with the message of the reader inside.

    Args:
        reader: What `make_reader` or `make_batch_reader` gave. Stop it after the last iteration, not before.
        batch_size: Rows of a batch on this rank, as the reader cuts them (its `tail` decides about the last one). None
            gives rows.
        ragged: What batches have of shapes with None: `"ragged"` tensors, or `"padded"` with zeros
            (`petastore.adapters.ragged.Padded(value)` with a value) to a tensor (None, *shape), and a column
            `<name>_lengths` of int64 that says how much of each row is real: (None,) where one dimension is free, else
            (None, free dimensions). One form for all, or a dict by column name. Text stays ragged.
        nulls: What stands where a value is missing: `"error"` refuses, naming the column; `"mask"` puts 0, an empty
            text or an empty array there, and adds a column `<name>_valid` of bool, (None,), True where a value is
            there; a value stands there itself. One of them for all nullable columns, or a dict by column name, where
            what is not named is `"error"`. In windows each row of a window is asked for itself: (None, length).

    Returns:
        A `tf.data.Dataset`. It lives in this process: datasets made from Python cannot be sent to a tf.data service.

    Raises:
        RequestError: A column is of a type that TensorFlow does not have, `batch_size` is no number of rows, or
            `ragged` or `nulls` cannot be.

    Example:
        >>> import petastore, tempfile
        >>> fields = [petastore.UnischemaField("id", "uint16"), petastore.UnischemaField("name", str)]
        >>> url = tempfile.mkdtemp() + "/people"
        >>> people = [{"id": 7, "name": "Ada"}, {"id": 8, "name": "Blaise"}]
        >>> _ = petastore.write_dataset(url, petastore.Unischema("people", fields), people)
        >>> with petastore.make_reader(url, shuffle_row_groups=False) as reader:
        ...     dataset = make_tf_dataset(reader, batch_size=2)
        ...     [batch["name"].numpy().tolist() for batch in dataset], dataset.element_spec["id"]
        ([[b'Ada', b'Blaise']], TensorSpec(shape=(None,), dtype=tf.uint16, name=None))
    """
    whole = isinstance(batch_size, (int, np.integer)) and not isinstance(batch_size, bool) and batch_size >= 1
    if batch_size is not None and not whole:
        raise RequestError(f"batch_size is a number of rows from 1, or None for rows, but {batch_size!r} was given")
    forms = forms_of(ragged, _fields(reader), known=("ragged", "padded"))
    free = [field.name for field in reader.schema if None in field.shape]
    refuse_ragged_windows(reader, free, instead="leave it out of the NGram")
    if forms and batch_size is None:
        raise RequestError("ragged='padded' is about batches, and rows were asked for; give batch_size")
    filled = nulls_of_reader(nulls, reader)
    columns = [
        column
        for field in _fields(reader)
        for column in _filled(_columns(field, forms, rows=batch_size is None), filled.get(field.name))
    ]
    passes = Passes(reader)
    if batch_size is None:
        dataset = _rows(lambda: _runs_of_rows(reader, passes), columns)
        elements_per_epoch = reader.plan.rows_per_epoch(_rows_cut_by_the_reader(reader))
    else:
        dataset = _batches(lambda: _noted(reader, passes, int(batch_size)), columns)
        elements_per_epoch = reader.steps_per_epoch(int(batch_size))
    begins_at_the_beginning = reader.cursor == Cursor() or reader.last_row_consumed
    if begins_at_the_beginning:
        elements = tf.data.INFINITE_CARDINALITY if reader.num_epochs is None else elements_per_epoch * reader.num_epochs
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(elements))
    options = tf.data.Options()
    # The reader works ahead in threads of its own: another hand-over for each batch would only cost.
    options.experimental_optimization.inject_prefetch = False
    if reader.shard.count > 1:
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(options)


@dataclasses.dataclass(frozen=True)
class _Column:
    """How a column travels from NumPy into TensorFlow."""

    name: str
    spec: Any
    """What `convert` gives for a whole batch, as a nest of `tf.TypeSpec`."""
    convert: Callable[[NDArray[Any]], Any]
    """A column `(rows, ...)` as what `spec` says."""
    finish_row: Callable[[Any], Any] | None = None
    """For rows: one row of what `spec` says as the tensor that users get, in graph code; None where it is that."""
    made_of: str | None = None
    """The reader's column; None is the one of this name."""
    is_dense: bool = False
    """Whether it is one tensor whose first dimension is rows, each independent of the others."""

    def of(self, run: Run) -> Any:
        """What `spec` says, of all rows of a run."""
        return self.convert(run.column(self.made_of or self.name))


def state_after(reader: Any, batches: int) -> dict[str, Any]:
    """The state after as many batches of the iteration under way (rows, where the dataset gives rows).

    TensorFlow reads ahead of training, by runs of batches and by what `prefetch` adds, and `reader.state_dict()` says
    how far the reader is. Only the trainer knows how many batches it has had. Continuing from this state gives what
    follows them: pass it to `load_state_dict` of a reader before its dataset is made.

    Args:
        reader: What the dataset was made of.
        batches: Batches received since the iteration, or the epoch of `fit`, began; from 1. With `repeat()`, in the
            newest repetition, which may have begun ahead of training: prefer `num_epochs` of the reader.

    Raises:
        RequestError: TensorFlow was not given as many, or over 65,536 more; or the dataset gives rows of a batch
            reader, which counts no rows.

    Example:
        >>> import petastore, tempfile
        >>> url = tempfile.mkdtemp() + "/ids"
        >>> schema = petastore.Unischema("ids", [petastore.UnischemaField("id", "int64")])
        >>> _ = petastore.write_dataset(url, schema, [{"id": i} for i in range(10)])
        >>> with petastore.make_reader(url, shuffle_row_groups=False) as reader:
        ...     for step, batch in enumerate(make_tf_dataset(reader, batch_size=3).prefetch(2), start=1):
        ...         if step == 2:
        ...             break
        ...     state = state_after(reader, step)
        >>> with petastore.make_reader(url, shuffle_row_groups=False) as reader:
        ...     reader.load_state_dict(state)
        ...     [batch["id"].numpy().tolist() for batch in make_tf_dataset(reader, batch_size=3)]
        [[6, 7, 8], [9]]
    """
    batches = whole_number(batches, name="batches", least=1)
    return dump_state(reader.plan, _handed.get(reader, Handed()).cursor_after(batches))


def tensors_of_next(dataset: Any) -> Any:
    """The tensors of a graph that are the next element of a dataset, each time that a session runs them.

    For programs with sessions, as of TensorFlow 1. All tensors of one run are of one element; after the last one,
    running them raises `tf.errors.OutOfRangeError`.

    Raises:
        RequestError: There is no graph: TensorFlow runs eagerly, and a dataset is iterated.

    Example:
        >>> with tf.Graph().as_default():
        ...     number = tensors_of_next(tf.data.Dataset.range(3))
        ...     with tf.compat.v1.Session() as session:
        ...         [int(session.run(number)) for _ in range(3)]
        [0, 1, 2]
    """
    if tf.executing_eagerly():
        raise RequestError(
            "the tensors of the next element are for graphs and sessions, and TensorFlow runs eagerly here: iterate "
            "the dataset (`for row in make_tf_dataset(reader)`), or build the graph `with tf.Graph().as_default():`"
        )
    return tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()


def with_signed_integers(dataset: Any) -> Any:
    """The dataset with `uint16` as `int32` and `uint32` as `int64`, as Petastorm gave them, in place of what they are.

    Example:
        >>> with_signed_integers(tf.data.Dataset.from_tensors({"x": tf.constant(1, tf.uint16)})).element_spec["x"].dtype
        tf.int32
    """
    signed = {tf.uint16: tf.int32, tf.uint32: tf.int64}
    if not any(spec.dtype in signed for spec in tf.nest.flatten(dataset.element_spec)):
        return dataset

    def cast(tensor: Any) -> Any:
        return tf.cast(tensor, signed[tensor.dtype]) if tensor.dtype in signed else tensor

    return dataset.map(lambda element: tf.nest.map_structure(cast, element))


_handed: weakref.WeakKeyDictionary[Any, Handed] = weakref.WeakKeyDictionary()
"""Of each reader: what the iteration under way was given."""


def _noted(reader: Any, passes: Passes, batch_size: int) -> Iterator[Any]:
    handed = _handed[reader] = Handed()
    return handed.noted(passes.start(batch_size))


def _batches(batches: Callable[[], Iterator[Any]], columns: list[_Column]) -> Any:
    """A dataset of batches."""
    if not all(column.is_dense for column in columns):
        return _handed_over(lambda: runs_of(batches(), most=1), columns)
    return _shared(lambda: runs_of(batches(), most=_BATCHES_A_CALL), columns, _cut)


def _cut(sizes: Any, columns: Any) -> Any:
    """The batches of a run; one without rows is a run of its own, of which `rebatch` would make nothing."""
    run = tf.data.Dataset.from_tensors(columns)
    without_rows = tf.cast(sizes[0] == 0, tf.int64)
    return run.take(without_rows).concatenate(run.skip(without_rows).rebatch(tf.maximum(sizes, 1)))


def _rows(runs: Callable[[], Iterator[Run]], columns: list[_Column]) -> Any:
    """A dataset of rows."""
    if all(column.is_dense for column in columns):
        return _shared(runs, columns, lambda _sizes, run: tf.data.Dataset.from_tensors(run).unbatch())
    finish = {column.name: column.finish_row for column in columns if column.finish_row is not None}

    def finished(row: dict[str, Any]) -> dict[str, Any]:
        return {name: finish[name](value) if name in finish else value for name, value in row.items()}

    return _handed_over(runs, columns).unbatch().map(finished)


def _runs_of_rows(reader: Any, passes: Passes) -> Iterator[Run]:
    """The rows that iterating the reader gives, in that order, many at a time."""
    # Larger batches would each be ordered lane by lane, and so be mixed worse than the rows one by one.
    size = _rows_cut_by_the_reader(reader)
    if reader.batched_output:
        _handed.pop(reader, None)
        return runs_of(passes.start(size), most=1)
    return runs_of(_noted(reader, passes, size), most=_rows_a_call(reader))


def _handed_over(runs: Callable[[], Iterator[Run]], columns: list[_Column]) -> Any:
    """A dataset whose elements are the columns of each run."""

    def generate() -> Iterator[dict[str, Any]]:
        for _, values in _converted(runs(), columns):
            yield {column.name: value for column, value in zip(columns, values, strict=True)}

    return tf.data.Dataset.from_generator(generate, output_signature={column.name: column.spec for column in columns})


def _shared(runs: Callable[[], Iterator[Run]], columns: list[_Column], cut: Callable[[Any, Any], Any]) -> Any:
    """The datasets, one after another, into which each run is cut; its columns share memory where they are aligned.

    `from_generator` copies what it is given, so it is given a number, and the arrays go another way.

    Args:
        runs: Begins a pass.
        columns: What is handed over.
        cut: Makes a dataset of batch sizes and columns, in graph code.
    """
    names, types = [column.name for column in columns], [column.spec.dtype for column in columns]
    on_their_way: dict[int, list[NDArray[Any]]] = {}
    numbers = itertools.count()

    def generate() -> Iterator[int]:
        for sizes, values in _converted(runs(), columns):
            number = next(numbers)
            on_their_way[number] = [np.array(sizes, np.int64), *values]
            try:
                yield number
            finally:
                on_their_way.pop(number, None)

    def elements(number: Any) -> Any:
        sizes, *values = tf.numpy_function(lambda key: on_their_way.pop(int(key)), [number], [tf.int64, *types])
        for column, value in zip(columns, values, strict=True):
            value.set_shape(column.spec.shape)
        return cut(tf.ensure_shape(sizes, (None,)), dict(zip(names, values, strict=True)))

    tokens = tf.data.Dataset.from_generator(generate, output_signature=tf.TensorSpec((), tf.int64))
    return tokens.flat_map(elements)


def _converted(runs: Iterable[Run], columns: list[_Column]) -> Iterator[tuple[tuple[int, ...], list[Any]]]:
    """Batch sizes and columns of each run; a run that cannot be converted is tried batch by batch.

    So what is wrong with one batch is said in its place, after the batches before it.
    """
    for run in runs:
        try:
            values = [column.of(run) for column in columns]
        except DecodeError:
            if len(run.sizes) == 1:
                raise
            yield from _converted(run.single(), columns)
        else:
            yield run.sizes, values


def _columns(field: UnischemaField, forms: Mapping[str, Form], *, rows: bool) -> list[_Column]:
    form = forms.get(field.name)
    return [_column(field, rows=rows)] if form is None else _padded(field, form)


def _filled(columns: list[_Column], null: NullColumn | None) -> list[_Column]:
    """The columns that are made of a reader's column, once its missing values have something in their place."""
    if null is None:
        return columns
    filled = [
        dataclasses.replace(column, convert=functools.partial(_convert_filled, null, column.convert))
        for column in columns
    ]
    if null.mask is None:
        return filled
    length = columns[0].spec.shape[1:2] if null.is_windows else ()
    spec = tf.TensorSpec((None, *length), tf.bool)
    return [*filled, _Column(null.mask, spec, null.valid, made_of=null.field.name, is_dense=True)]


def _convert_filled(null: NullColumn, convert: Callable[[NDArray[Any]], Any], column: NDArray[Any]) -> Any:
    return convert(null.filled(column))


def _padded(field: UnischemaField, form: Form) -> list[_Column]:
    value, lengths = form.value if isinstance(form, Padded) else 0, lengths_field(field)
    free = [axis for axis, size in enumerate(field.shape) if size is None]

    def lengths_of(column: NDArray[Any]) -> NDArray[np.int64]:
        return ragged_cells(field, column)[1][:, free].reshape(len(column), *_sizes(lengths.shape))

    return [
        _Column(
            field.name,
            tf.TensorSpec((None, *field.shape), _tf_dtype(field)),
            lambda column: _plain(field.name, padded(field, column, value)[0]),
        ),
        _Column(lengths.name, tf.TensorSpec((None, *lengths.shape), tf.int64), lengths_of, made_of=field.name),
    ]


def _column(field: UnischemaField, *, rows: bool) -> _Column:
    name, shape, dtype = field.name, field.shape, _tf_dtype(field)
    if None in shape and rows:
        return _free_rows(field, dtype)
    if None in shape:
        ragged_rank = len(shape) - tuple(reversed(shape)).index(None)
        spec = tf.RaggedTensorSpec((None, *shape), dtype, ragged_rank=ragged_rank)
        return _Column(name, spec, lambda column: _ragged(field, column, ragged_rank))
    spec = tf.TensorSpec((None, *shape), dtype)
    return _Column(name, spec, lambda column: _dense(field, column), is_dense=True)


def _free_rows(field: UnischemaField, dtype: Any) -> _Column:
    """Values of free shapes travel flat beside their shapes: `unbatch` takes ragged rows apart, but loses shapes."""
    shape = field.shape
    spec = (tf.RaggedTensorSpec((None, None), dtype, ragged_rank=1), tf.TensorSpec((None, len(shape)), tf.int64))

    def convert(column: NDArray[Any]) -> Any:
        flat, shapes = _flattened(field, column)
        return tf.RaggedTensor.from_row_lengths(flat, shapes.prod(axis=1), validate=False), shapes

    def finish_row(parts: Any) -> Any:
        return tf.ensure_shape(tf.reshape(parts[0], parts[1]), shape)

    return _Column(field.name, spec, convert, finish_row)


def _dense(field: UnischemaField, column: NDArray[Any]) -> NDArray[Any]:
    if column.dtype == np.dtype(object) and field.shape:
        return _flattened(field, column)[0].reshape(len(column), *_sizes(field.shape))
    return _plain(field.name, present(field.name, column))


def _ragged(field: UnischemaField, column: NDArray[Any], ragged_rank: int) -> Any:
    """The ragged tensor (rows, *shape) of a column of arrays, built from the innermost dimension outwards."""
    flat, shapes = _flattened(field, column)
    inner = _sizes(field.shape[ragged_rank:])
    tensor = tf.convert_to_tensor(flat.reshape(len(flat) // max(math.prod(inner), 1), *inner))
    for axis in reversed(range(ragged_rank)):
        size = field.shape[axis]
        # Of each cell: how many lists of this dimension it has, one for each index into the dimensions before it.
        lists = shapes[:, :axis].prod(axis=1)
        if size is None:
            tensor = tf.RaggedTensor.from_row_lengths(tensor, np.repeat(shapes[:, axis], lists), validate=False)
        else:
            tensor = tf.RaggedTensor.from_uniform_row_length(tensor, size, nrows=int(lists.sum()), validate=False)
    return tensor


def _flattened(field: UnischemaField, column: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The values of all cells one after another, and the shape of each cell, `(rows, dimensions)`."""
    flat, shapes = flattened(field, column)
    return _plain(field.name, flat), shapes


def _sizes(shape: tuple[int | None, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size is not None)


def _plain(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Values in a dtype and byte order that TensorFlow takes."""
    if values.dtype.kind in "mM":
        return nanoseconds(name, values)
    if values.dtype.kind in "OSU":
        return _texts(values)
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def _texts(values: NDArray[Any]) -> NDArray[Any]:
    texts = values.astype(object, copy=False)
    first = next(iter(texts.flat), None)
    if not isinstance(first, Decimal):
        return texts
    return np.array([str(value.normalize()) for value in texts.flat], dtype=object).reshape(texts.shape)


def _tf_dtype(field: UnischemaField) -> Any:
    if field.numpy_dtype in (np.str_, np.bytes_, Decimal):
        return tf.string
    if field.dtype.kind in "mM":
        return tf.int64
    try:
        if field.dtype != np.dtype(object):
            return tf.as_dtype(field.dtype)
    except TypeError:
        pass
    raise RequestError(
        f"column {field.name!r} is {field.dtype_name}, and TensorFlow has no such type; leave it out with "
        "schema_fields, or convert it in a transform_spec"
    )


def _fields(reader: Any) -> list[UnischemaField]:
    padded = reader.plan.request.tail is Tail.PAD
    return [*reader.schema, *([UnischemaField(VALID_COLUMN, np.bool_)] if padded else [])]


def _rows_cut_by_the_reader(reader: Any) -> int:
    """Rows at a time as the reader itself iterates: one, or the largest row group where it gives column batches."""
    largest = int(reader.plan.inventory.rows.max(initial=1))
    return max(min(largest, _LARGEST_BATCH), 1) if reader.batched_output else 1


def _rows_a_call(reader: Any) -> int:
    """Rows that Python hands over at once where users see single rows: some megabytes of them."""
    known = [_BYTES_OF_A_FREE_VALUE if None in field.shape else field.decoded_bytes for field in reader.schema]
    row_bytes = sum(_BYTES_OF_A_TEXT if size is None else size for size in known)
    return max(1, min(_ROWS_A_CALL, _BYTES_A_CALL // max(row_bytes, 1)))
