"""How columns cross from Python into TensorFlow: of each run one call, and one array for all columns of a stack.

What is called costs some 0.2 ms, and each array that it gives 5 µs: a thousand columns one by one would take longer
than training on them. TensorFlow takes them apart without a copy where rows of a run fill whole cache lines.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from petastore.adapters.runs import Run
from petastore.adapters.tensorflow.tensor_column import TensorColumn
from petastore.errors import DecodeError
from petastore.readers.execution.handouts import RaisesAfterErrors

__all__ = ["Crossing", "converted", "written_for_graphs"]


def written_for_graphs(function: Callable[..., Any]) -> Any:
    """The function, which has no `if` and no loop over tensors: to look for them takes longer than a first batch."""
    return tf.autograph.experimental.do_not_convert(function)


class _Parcel:
    """Arrays that cross together: those of one column, or one array of several columns."""

    def __init__(self, columns: Sequence[TensorColumn]) -> None:
        self.columns = columns
        self._is_stack = len(columns) > 1
        of_first = columns[0].parts
        stacked = [tf.TensorSpec((len(columns), *part.shape), part.dtype) for part in of_first]
        self.specs = stacked if self._is_stack else list(of_first)

    def of(self, run: Run) -> Sequence[NDArray[Any]]:
        """The arrays of all rows of a run; views of the reader's memory where it has such arrays."""
        if not self._is_stack:
            return self.columns[0].of(run)
        names = tuple(column.name for column in self.columns)
        for stacked, stack in run.source.stacks:
            if stacked == names:
                return [stack[:, run.first : run.first + sum(run.sizes)]]
        return [np.stack([column.of(run)[0] for column in self.columns])]

    def tensors(self, arrays: Sequence[Any]) -> dict[str, Any]:
        """The tensors of its columns, in graph code."""
        shaped = [tf.ensure_shape(array, spec.shape) for array, spec in zip(arrays, self.specs, strict=True)]
        if self._is_stack:
            names = [column.name for column in self.columns]
            return dict(zip(names, tf.unstack(shaped[0]), strict=True))
        (column,) = self.columns
        return {column.name: shaped[0] if column.join is None else column.join(shaped)}


class Crossing:
    """Makes a dataset whose elements are made of runs. One for each dataset; passes over it may be many.

    Args:
        columns: What elements have.
        stacks: Names of columns that the reader has in one array too, where nothing is missing.
    """

    def __init__(self, columns: Sequence[TensorColumn], stacks: Iterable[Collection[str]]) -> None:
        self._names = [column.name for column in columns]
        self._parcels = _parcels(columns, stacks)
        self._specs = [spec for parcel in self._parcels for spec in parcel.specs]
        self._numbers = itertools.count()
        self._under_way: dict[int, Iterator[list[NDArray[Any]]]] = {}

    def dataset(self, runs: Callable[[], Iterator[Run]], cut: Callable[[Any, Any], Any]) -> Any:
        """The datasets, one after another, into which each run is cut.

        Args:
            runs: Begins a pass.
            cut: Makes a dataset of batch sizes and a dict of columns, in graph code.
        """

        def one_pass() -> Iterator[int]:
            number = next(self._numbers)
            arrays = self._arrays(runs())
            self._under_way[number] = RaisesAfterErrors(arrays)
            try:
                yield number
            finally:  # TensorFlow comes here when nobody can ask for more
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

            # A function that is mapped cannot end a dataset.
            return tf.data.Dataset.range(tf.int64.max).map(next_run).take_while(lambda sizes, *_: tf.size(sizes) > 0)

        def elements(sizes: Any, *arrays: Any) -> Any:
            left = iter(arrays)
            found: dict[str, Any] = {}
            for parcel in self._parcels:
                found |= parcel.tensors(list(itertools.islice(left, len(parcel.specs))))
            return cut(sizes, {name: found[name] for name in self._names})

        # `from_generator` copies what it is given and calls Python three times for it, so it gives one number a pass.
        passes = tf.data.Dataset.from_generator(one_pass, output_signature=tf.TensorSpec((), tf.int64))
        return passes.flat_map(written_for_graphs(runs_of_pass)).flat_map(written_for_graphs(elements))

    def _next(self, number: Any) -> list[NDArray[Any]]:
        """Batch sizes and arrays of the next run of a pass; no sizes at its end."""
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
    """Batch sizes and what is made of each run; a run that cannot be converted is tried batch by batch.

    So what is wrong with one batch is said in its place, after the batches before it.
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
