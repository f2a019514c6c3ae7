"""Transfer of columns from Python to TensorFlow, with many batches in one call.

A call from TensorFlow into Python takes about 0.2 ms, plus 5 µs for each returned array. Returning a thousand columns
one by one would take longer than training on them. Therefore columns of one dtype are passed as one array, which
TensorFlow splits again, zero-copy if the rows fill whole cache lines. Arrays have TensorFlow's dtypes and alignment.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from petastore.adapters.column_plans import Run
from petastore.adapters.nulls import nanoseconds
from petastore.errors import DecodeError, InvalidArgumentError
from petastore.readers.execution.handouts import RaisesAfterErrors
from petastore.schema.field import UnischemaField

__all__ = [
    "Crossing",
    "TensorColumn",
    "aligned",
    "converted",
    "plain",
    "sizes_of",
    "tf_dtype",
    "whole_passes",
    "written_for_graphs",
]


_ALIGNMENT = 64
"""Alignment in bytes; TensorFlow copies arrays with another alignment."""


@dataclasses.dataclass(frozen=True)
class TensorColumn:
    """Conversion of one NumPy column to TensorFlow tensors."""

    name: str
    parts: tuple[Any, ...]
    """A `tf.TensorSpec` for each array that is passed to TensorFlow."""
    convert: Callable[[NDArray[Any]], Sequence[NDArray[Any]]]
    """Function that converts a column `(rows, ...)` to the arrays described by `parts`."""
    join: Callable[[Sequence[Any]], Any] | None = None
    """Graph function that builds the column from its tensors; None if its only tensor is the column."""
    finish_row: Callable[[Any], Any] | None = None
    """Graph function that converts one row of the column to the user's tensor; None if no conversion is needed."""
    made_of: str | None = None
    """Name of the reader's column from which this column is made; None means `name`."""
    is_dense: bool = False
    """Whether the column is one array whose rows do not depend on the other rows of the batch."""
    is_as_it_is: bool = False
    """Whether the reader's array is passed unchanged, if no value is missing."""

    def of(self, run: Run) -> Sequence[NDArray[Any]]:
        """Return the arrays to pass to TensorFlow for a run (consecutive batches)."""
        return self.convert(run.column(self.made_of or self.name))


def tf_dtype(field: UnischemaField) -> Any:
    """Return the TensorFlow dtype of a field's tensors.

    Raises:
        InvalidArgumentError: TensorFlow has no dtype for the field.
    """
    if field.numpy_dtype in (np.str_, np.bytes_, Decimal):
        return tf.string
    if field.dtype.kind in "mM":
        return tf.int64
    try:
        if field.dtype != np.dtype(object):
            return tf.as_dtype(field.dtype)
    except TypeError:
        pass
    raise InvalidArgumentError(
        f"column {field.name!r} must have a dtype that TensorFlow supports, got {field.dtype_name}. Leave the column "
        "out with schema_fields, or convert it in a transform_spec"
    )


def plain(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Return values in a dtype and byte order that TensorFlow accepts."""
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


def aligned(size: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a new uninitialized array, aligned so that TensorFlow need not copy it.

    Example:
        >>> aligned(3, np.dtype("int16")).__array_interface__["data"][0] % 64
        0
    """
    memory = np.empty(size * dtype.itemsize + _ALIGNMENT, np.uint8)
    first = -memory.__array_interface__["data"][0] % _ALIGNMENT
    return memory[first : first + size * dtype.itemsize].view(dtype)


def sizes_of(shape: tuple[int | None, ...]) -> tuple[int, ...]:
    """Return the known sizes of a shape: the dimensions that are not None."""
    return tuple(size for size in shape if size is not None)


def written_for_graphs(function: Callable[..., Any]) -> Any:
    """Decorator: disable AutoGraph conversion of a graph function.

    The conversion would take longer than a batch.
    """
    return tf.autograph.experimental.do_not_convert(function)


class _Parcel:
    """Arrays that are passed to TensorFlow together.

    They are the arrays of one column, or one array that holds several columns.
    """

    def __init__(self, columns: Sequence[TensorColumn]) -> None:
        self.columns = columns
        self._is_stack = len(columns) > 1
        of_first = columns[0].parts
        stacked = [tf.TensorSpec((len(columns), *part.shape), part.dtype) for part in of_first]
        self.specs = stacked if self._is_stack else list(of_first)

    def of(self, run: Run) -> Sequence[NDArray[Any]]:
        """Return the arrays of all rows of a run, zero-copy if possible."""
        if not self._is_stack:
            return self.columns[0].of(run)
        names = tuple(column.name for column in self.columns)
        for stacked, stack in run.source.stacks:
            if stacked == names:
                return [stack[:, run.first : run.first + sum(run.sizes)]]
        return [np.stack([column.of(run)[0] for column in self.columns])]

    def tensors(self, arrays: Sequence[Any]) -> dict[str, Any]:
        """Return the tensor of each column, by name; a graph function."""
        shaped = [tf.ensure_shape(array, spec.shape) for array, spec in zip(arrays, self.specs, strict=True)]
        if self._is_stack:
            names = [column.name for column in self.columns]
            return dict(zip(names, tf.unstack(shaped[0]), strict=True))
        (column,) = self.columns
        return {column.name: shaped[0] if column.join is None else column.join(shaped)}


class Crossing:
    """Passes batches from Python to TensorFlow, many in one call. Reusable.

    The batches of a call are a run: consecutive batches of the same columns (`petastore.adapters.column_plans.Run`).

    Args:
        columns: Columns to pass to TensorFlow.
        stacks: Groups of column names: the reader stores the columns of a group in one array, if no value is missing.
    """

    def __init__(self, columns: Sequence[TensorColumn], stacks: Iterable[Collection[str]]) -> None:
        self._names = [column.name for column in columns]
        self._parcels = _parcels(columns, stacks)
        self._specs = [spec for parcel in self._parcels for spec in parcel.specs]
        self._numbers = itertools.count()
        self._under_way: dict[int, Iterator[list[NDArray[Any]]]] = {}

    def dataset(self, runs: Callable[[], Iterator[Run]], cut: Callable[[Any, Any], Any]) -> Any:
        """Return a `tf.data.Dataset` of one iteration over a reader.

        Args:
            runs: Function that begins an iteration over the reader and returns its runs of batches.
            cut: Graph function that divides a run into elements: it makes a dataset from the run's batch sizes and a
                dict of the run's columns.
        """

        def one_pass() -> Iterator[int]:
            number = next(self._numbers)
            arrays = self._arrays(runs())
            self._under_way[number] = RaisesAfterErrors(arrays)
            try:
                yield number
            finally:  # TensorFlow calls this after the last consumer has ended
                del self._under_way[number]
                arrays.close()

        def runs_of_pass(number: Any) -> Any:
            def next_run(_: Any) -> Any:
                sizes, *arrays = tf.numpy_function(
                    self._next, [number], [tf.int64, *(spec.dtype for spec in self._specs)]
                )
                for array, spec in zip(arrays, self._specs, strict=True):
                    array.set_shape([None] * spec.shape.rank)
                return tf.ensure_shape(sizes, (None,)), *arrays

            # A function of `map` cannot end a dataset, so it returns an empty run, at which `take_while` ends.
            return tf.data.Dataset.range(tf.int64.max).map(next_run).take_while(lambda sizes, *_: tf.size(sizes) > 0)

        def elements(sizes: Any, *arrays: Any) -> Any:
            left = iter(arrays)
            found: dict[str, Any] = {}
            for parcel in self._parcels:
                found |= parcel.tensors(list(itertools.islice(left, len(parcel.specs))))
            return cut(sizes, {name: found[name] for name in self._names})

        # `from_generator` copies each value and calls Python three times for it, so it yields only one number for each
        # iteration over the reader.
        passes = tf.data.Dataset.from_generator(one_pass, output_signature=tf.TensorSpec((), tf.int64))
        return passes.flat_map(written_for_graphs(runs_of_pass)).flat_map(written_for_graphs(elements))

    def _next(self, number: Any) -> list[NDArray[Any]]:
        """Return the next run (consecutive batches) of an iteration as arrays: the batch sizes, then the columns.

        At the end of the iteration, all arrays are empty.

        Args:
            number: Number of the iteration over the reader.
        """
        arrays = next(self._under_way[int(number)], None)
        return arrays or [np.empty(0, np.int64), *(_nothing(spec) for spec in self._specs)]

    def _arrays(self, runs: Iterable[Run]) -> Any:
        for sizes, arrays in converted(runs, [parcel.of for parcel in self._parcels]):
            yield [np.array(sizes, np.int64), *itertools.chain.from_iterable(arrays)]


def _nothing(spec: Any) -> NDArray[Any]:
    return np.empty([0] * spec.shape.rank, spec.dtype.as_numpy_dtype)


def converted(
    runs: Iterable[Run], conversions: Sequence[Callable[[Run], Any]]
) -> Iterator[tuple[tuple[int, ...], list[Any]]]:
    """Convert runs (consecutive batches); yield the batch sizes and columns of each.

    If the conversion of a run fails, its batches are converted one by one. An error in a batch is therefore raised
    after the previous batches were yielded.

    Args:
        runs: Runs to convert.
        conversions: Functions that are called with a run; their results are the list of columns.

    Raises:
        DecodeError: A batch cannot be converted.
    """
    for run in runs:
        try:
            values = [convert(run) for convert in conversions]
        except DecodeError:
            if len(run.sizes) == 1:
                raise
            yield from converted(run.single(), conversions)
        else:
            yield run.sizes, values


def _parcels(columns: Sequence[TensorColumn], stacks: Iterable[Collection[str]]) -> list[_Parcel]:
    as_they_are = {column.name: column for column in columns if column.is_as_it_is}
    whole = [stack for stack in stacks if len(stack) > 1 and all(name in as_they_are for name in stack)]
    stacked = {name for stack in whole for name in stack}
    return [
        *(_Parcel([as_they_are[name] for name in stack]) for stack in whole),
        *(_Parcel([column]) for column in columns if column.name not in stacked),
    ]


def whole_passes(
    made_of: Callable[[Callable[[], Iterator[Run]]], Any],
    begin: Callable[[], Iterator[Run]],
    *,
    elements: int | None,
    count: Callable[[Run], int],
) -> Any:
    """Return a dataset whose cardinality is the length of a whole iteration.

    Keras takes the cardinality as the number of steps of each epoch. Without a cardinality, Keras takes the length of
    the first epoch. After a resume, the first epoch is shorter, so Keras would drop rows of all later epochs.

    `assert_cardinality` would raise an error for the shorter epoch. The dataset therefore gets its cardinality from
    `repeat().take(elements)`. This dataset also ends early if a repetition is empty, so an empty iteration is inserted
    after each iteration that is shorter.

    Args:
        made_of: Function that makes a dataset, given a function that begins an iteration.
        begin: Function that begins an iteration over the reader and returns its runs of batches.
        elements: Number of elements of a whole iteration; None means endless.
        count: Function that returns the number of elements of a run.
    """
    if elements is None:
        return made_of(begin).apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
    return made_of(_Passes(begin, elements, count)).repeat().take(elements)


class _Passes:
    """Callable that begins iterations over a reader for a repeated dataset.

    An empty iteration follows each iteration that is shorter than `elements`, such as the first one after a resume.
    `Dataset.repeat` ends at the empty iteration, so an epoch of Keras does not continue with rows of the next epoch.

    Args:
        begin: Function that begins an iteration over the reader and returns its runs of batches.
        elements: Number of elements of a whole iteration.
        count: Function that returns the number of elements of a run.
    """

    def __init__(self, begin: Callable[[], Iterator[Run]], elements: int, count: Callable[[Run], int]) -> None:
        self._begin, self._elements, self._count = begin, elements, count
        self._ended_early = False

    def __call__(self) -> Iterator[Run]:
        if self._ended_early:
            self._ended_early = False
            return iter(())
        return self._counted()

    def _counted(self) -> Iterator[Run]:
        runs, given = self._begin(), 0
        for run in runs:
            given += self._count(run)
            if given == self._elements:
                next(runs, None)  # record now that the reader is at its end, because TensorFlow makes no further call
            yield run
        self._ended_early = 0 < given < self._elements  # a dataset without elements ends even under `repeat`
