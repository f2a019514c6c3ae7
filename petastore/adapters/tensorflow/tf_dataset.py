"""Batches or rows of a reader as a `tf.data.Dataset`, with checkpoints.

`make_tf_dataset` makes a dataset, and `make_tf_dataset_fn` a dataset function for `tf.distribute`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, Self, TypeAlias, get_args

import numpy as np
import tensorflow as tf

from petastore.adapters.column_plans import Run, column_plans, runs_of
from petastore.adapters.epoch_tracker import EpochTracker, delivered_of
from petastore.adapters.global_batches import refuse_other_shards
from petastore.adapters.nulls import Nulls
from petastore.adapters.ragged import Padded
from petastore.adapters.tensorflow.columns import columns_of_field
from petastore.adapters.tensorflow.crossing import Crossing, TensorColumn, whole_passes, written_for_graphs
from petastore.errors import InvalidArgumentError
from petastore.plan.request import LastBatch, Shard, whole_number
from petastore.plan.state import dump_state
from petastore.readers.assembly.assemble import VALID_COLUMN
from petastore.readers.reader import Reader
from petastore.schema.field import UnischemaField

__all__ = [
    "DatasetFunction",
    "ReaderState",
    "TfForm",
    "dataset_of_fields",
    "make_tf_dataset",
    "make_tf_dataset_fn",
    "state_after",
]


class ReaderState(tf.train.experimental.PythonState):  # type: ignore[misc]
    """The position of a reader, as a trackable object for `tf.train.Checkpoint`.

    TensorFlow prefetches, so the training loop must add 1 to `batches` after each batch. The checkpoint stores a small
    JSON text, the same on every worker. After a restore, the next iteration of the reader's dataset begins with the
    next batch, even if the dataset was created before the restore. A running iteration ends with an error.

    Use it instead of saving the dataset's iterator, which TensorFlow cannot do for datasets that call Python. It works
    with `tf.train.CheckpointManager`. In Keras' `fit`, use `petastore.adapters.keras.ReaderCheckpoint`.

    Args:
        reader: The reader behind the dataset.

    Example:
        >>> import petastore, tempfile
        >>> from petastore.adapters.tensorflow import make_tf_dataset
        >>> folder = tempfile.mkdtemp()
        >>> schema = petastore.Unischema("ids", [petastore.UnischemaField("id", "int64")])
        >>> _ = petastore.write_dataset(folder + "/ids", schema, [{"id": i} for i in range(10)])
        >>> with petastore.make_reader(folder + "/ids", shuffle_row_groups=False) as reader:
        ...     checkpoint = tf.train.Checkpoint(step=tf.Variable(0), place=ReaderState(reader))
        ...     for batch in make_tf_dataset(reader, batch_size=3).prefetch(2):
        ...         checkpoint.place.batches += 1
        ...         if checkpoint.place.batches == 2:
        ...             break
        ...     path = checkpoint.save(folder + "/checkpoint")
        >>> with petastore.make_reader(folder + "/ids", shuffle_row_groups=False) as reader:
        ...     checkpoint = tf.train.Checkpoint(step=tf.Variable(0), place=ReaderState(reader))
        ...     _ = checkpoint.restore(path)
        ...     [batch["id"].numpy().tolist() for batch in make_tf_dataset(reader, batch_size=3)]
        [[6, 7, 8], [9]]
    """

    def __init__(self, reader: Any) -> None:
        super().__init__()
        self._reader = reader
        self.batches = 0
        """Batches that training has received since the current iteration began; set it to 0 before the next one."""

    def serialize(self) -> str:
        """Return the state after `batches` batches as JSON text. TensorFlow calls it.

        Raises:
            InvalidArgumentError: TensorFlow received fewer than `batches` batches.
        """
        state = state_after(self._reader, self.batches) if self.batches else self._reader.state_dict()
        return json.dumps(state)

    def deserialize(self, string_value: str | bytes) -> None:
        """Move the reader to the saved position. TensorFlow calls it.

        Raises:
            InvalidArgumentError: The state was saved with another dataset or row order.
        """
        self._reader.load_state_dict(json.loads(string_value))
        self.batches = 0


def state_after(reader: Any, batches: int) -> dict[str, Any]:
    """Return the reader's state after a number of batches of the current iteration.

    If the dataset has no `batch_size`, `batches` counts rows. TensorFlow prefetches, so `reader.state_dict()` is ahead
    of training, and only the training loop knows how many batches it has received. To resume with the next batch, pass
    the result to `load_state_dict` of a reader before its dataset is created.

    Args:
        reader: The reader of the dataset.
        batches: Number of batches received since the iteration, or the epoch of `fit`, began; at least 1. Do not use
            `repeat()`, with which TensorFlow already prefetches from the next repetition; set `num_epochs` of the
            reader instead.

    Raises:
        InvalidArgumentError: TensorFlow received fewer batches, or over 65,536 more; or the dataset yields rows of a
            reader from `make_batch_reader`, whose position counts batches.

    Example:
        >>> import petastore, tempfile
        >>> from petastore.adapters.tensorflow import make_tf_dataset
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
    return dump_state(reader.plan, delivered_of(reader).cursor_after(batches, in_pass=True))


TfRaggedWord: TypeAlias = Literal["ragged", "dense", "padded"]
"""Names of the forms (representations in a batch) of a column whose shape has None; see `make_tf_dataset`."""

TfForm: TypeAlias = TfRaggedWord | Padded
"""Form (representation in a batch) of a column whose shape has None."""

_BATCHES_A_CALL = 4096
_BYTES_A_CALL = 4 * 1024 * 1024
_ROWS_A_CALL = 1024
_BYTES_OF_A_FREE_VALUE = 64 * 1024
_BYTES_OF_A_TEXT = 64


def make_tf_dataset(
    reader: Reader,
    batch_size: int | None = None,
    *,
    ragged: TfForm | Mapping[str, TfForm] = "ragged",
    nulls: Nulls = "error",
) -> Any:
    """Return a `tf.data.Dataset` of a reader's batches or rows.

    Elements are dicts from column name to tensor. One iteration covers all epochs of the reader. Each further iteration
    (`repeat()`, the next epoch of `fit`) starts again from the first row. Starting a second iteration while one is
    running ends the first with an error. `cardinality()` is the length of a whole iteration; an iteration that resumes
    from a state has the remaining batches. With a sharded reader, auto-sharding of the dataset is OFF, because
    TensorFlow would otherwise shard a second time and silently drop most rows. TensorFlow's automatic prefetch is off,
    because the reader prefetches; add `prefetch` yourself after a slow `map`. `state_after` returns the position of
    training.

    ```text
    field                            batches                                rows
    numbers, booleans                (None, *shape), dtype as declared      shape
    a shape with None                RaggedTensor (None, *shape)            tensor, None where the shape is free
    text, bytes                      tf.string                              tf.string
    Decimal                          tf.string: "1.5" of 1.50               tf.string
    datetime64, timedelta64          int64 nanoseconds                      int64 nanoseconds
    missing values                   an error that names the column, unless `nulls` is set
    "valid" of last_batch="pad"      bool (None,)                           bool ()
    ```

    Errors of the reader become TensorFlow errors that contain its message.

    Args:
        reader: The reader that `make_reader` or `make_batch_reader` returned. Close it after the last iteration, not
            before.
        batch_size: Rows per batch on this rank; the reader's `last_batch` decides the size of the last batch. None
            yields rows.
        ragged: Type of columns whose shape has None: one value for all, or a dict by column name. `"ragged"`: a
            RaggedTensor. `"dense"`: a tensor (None, *shape); a batch with different shapes is an error. `"padded"`: a
            tensor (None, *shape), padded with zeros (or with v for `petastore.adapters.ragged.Padded(v)`), and an int64
            column `<name>_lengths` with the lengths before padding: (None,) with one variable dimension, else (None,
            variable dimensions). Text stays ragged.
        nulls: Treatment of missing values. `"error"` (the default) raises an error that names the column. `"mask"`
            replaces them by 0, an empty string or an empty array, and adds a bool column `<name>_valid` (None,), True
            where a value is present. Any other value is a fill value. Pass one value for all nullable columns, or a
            dict by column name; columns that are not named get `"error"`. Windows have a mask per row of the window:
            (None, length).

    Returns:
        A `tf.data.Dataset`. It works in this process only; the tf.data service cannot run datasets that call Python.

    Raises:
        InvalidArgumentError: At the call, or when iteration begins: TensorFlow has no type for a column; `batch_size`,
            `ragged` or `nulls` is invalid; or the active `keras.distribution` would shard a second time or needs other
            shards.

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
    return dataset_of_fields(reader, reader.schema, batch_size, ragged=ragged, nulls=nulls)


def dataset_of_fields(
    reader: Reader,
    fields: Iterable[UnischemaField],
    batch_size: int | None,
    *,
    ragged: TfForm | Mapping[str, TfForm] = "ragged",
    nulls: Nulls = "error",
) -> Any:
    """Return the dataset of `make_tf_dataset` with some columns only.

    The reader reads all its columns; those that are not in `fields` are dropped.
    """
    whole = isinstance(batch_size, (int, np.integer)) and not isinstance(batch_size, bool) and batch_size >= 1
    if batch_size is not None and not whole:
        raise InvalidArgumentError(
            f"batch_size must be an int of at least 1, or None for single rows, got {batch_size!r}"
        )
    handed = [*fields, *_fields_of_padding(reader)]
    plans = column_plans(reader, ragged, nulls, known=get_args(TfRaggedWord), fields=handed)
    if batch_size is None and any(plan.form is not None for plan in plans.values()):
        raise InvalidArgumentError(
            f"ragged must be left out where batch_size is None, got {ragged!r}: single rows keep their own shapes. "
            "Set batch_size, or remove ragged"
        )
    columns = [
        column
        for name, plan in plans.items()
        for column in columns_of_field(
            plan, rows=batch_size is None, windows=reader.ngram is not None and name != VALID_COLUMN
        )
    ]

    def ask_keras() -> None:
        refuse_other_shards(reader, batch_size, is_tf_dataset=True)

    ask_keras()
    dataset = _rows(reader, columns) if batch_size is None else _batches(reader, int(batch_size), columns)
    options = tf.data.Options()
    # The reader prefetches in its own threads, so another queue would only take time.
    options.experimental_optimization.inject_prefetch = False
    if reader.shard.count > 1:
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return _CheckedDataset(dataset.with_options(options), ask_keras)


class _CheckedDataset(tf.data.Dataset):  # type: ignore[misc]
    """Wrapper of a dataset that runs a check before each iteration.

    Args:
        dataset: The dataset.
        check: Function that is called when an iteration from Python begins, and raises an error if the dataset cannot
            be used.
    """

    def __init__(self, dataset: Any, check: Callable[[], None]) -> None:
        self._dataset, self._check = dataset, check
        super().__init__(tf.data.experimental.to_variant(dataset))

    def _inputs(self) -> list[Any]:
        return [self._dataset]

    @property
    def element_spec(self) -> Any:
        """The types and shapes of an element."""
        return self._dataset.element_spec

    def __iter__(self) -> Any:
        self._check()
        return super().__iter__()


def _batches(reader: Any, batch_size: int, columns: list[TensorColumn]) -> Any:
    """Return a dataset whose elements are batches."""
    crossing, tracker = Crossing(columns, reader.stacked_columns), EpochTracker(reader, delivered_of(reader))
    # Ragged columns are passed one batch per call, because their arrays depend on all rows of the batch.
    are_dense = all(column.is_dense for column in columns)
    most, cut = (_BATCHES_A_CALL, cut_run) if are_dense else (1, lambda _, run: tf.data.Dataset.from_tensors(run))
    return whole_passes(
        lambda runs: crossing.dataset(runs, cut),
        lambda: runs_of(tracker.start(batch_size), most=most),
        elements=_of_pass(reader, reader.steps_per_epoch(batch_size)),
        count=lambda run: len(run.sizes),
    )


def _of_pass(reader: Any, elements: int) -> int | None:
    """Return the number of elements in all epochs, given the number in one epoch.

    Return None if the reader is endless.
    """
    return None if reader.num_epochs is None else elements * reader.num_epochs


def cut_run(sizes: Any, columns: Any) -> Any:
    """Return a dataset of the single batches of a run.

    A run is a group of consecutive batches that Python passes together. A batch without rows is always a separate run,
    and is concatenated to the result, because `rebatch` drops empty batches.

    Args:
        sizes: Tensor with the number of rows of each batch.
        columns: Tensors with the rows of all batches of the run, by column name.
    """
    run = tf.data.Dataset.from_tensors(columns)
    without_rows = tf.cast(sizes[0] == 0, tf.int64)
    return _rebatched(run, tf.maximum(sizes, 1)).concatenate(run.take(without_rows))


def _rebatched(dataset: Any, sizes: Any) -> Any:
    """Return a dataset with batches of the given sizes.

    The raw operation behind `Dataset.rebatch` is called directly.
    """
    element_spec = {
        name: tf.TensorSpec((None, *column.shape[1:]), column.dtype) for name, column in dataset.element_spec.items()
    }
    columns = tf.nest.flatten(element_spec)
    variant = tf.raw_ops.RebatchDatasetV2(
        input_dataset=tf.data.experimental.to_variant(dataset),
        batch_sizes=sizes,
        drop_remainder=False,
        output_types=[column.dtype for column in columns],
        output_shapes=[column.shape for column in columns],
    )
    return tf.data.experimental.from_variant(variant, element_spec)


def _rows(reader: Any, columns: list[TensorColumn]) -> Any:
    """Return a dataset whose elements are single rows."""
    crossing = Crossing(columns, reader.stacked_columns)
    # Rows of a batched reader are not counted, because a state cannot be saved between two rows of a batch.
    counted = not reader.batched_output
    tracker = EpochTracker(reader, delivered_of(reader) if counted else None)
    most = _rows_a_call(reader) if counted else 1

    def begin() -> Iterator[Run]:
        if not counted:
            delivered_of(reader).begin()
        # Larger batches would mix rows worse, because the rows of a batch are sorted by lane (one of the sequences of
        # row groups that an epoch interleaves).
        return runs_of(tracker.start(reader.rows_per_batch), most=most)

    rows = whole_passes(
        lambda runs: crossing.dataset(runs, lambda _, run: tf.data.Dataset.from_tensors(run).unbatch()),
        begin,
        elements=_of_pass(reader, reader.num_rows),
        count=lambda run: sum(run.sizes),
    )
    finish = {column.name: column.finish_row for column in columns if column.finish_row is not None}
    if not finish:
        return rows

    def finished(row: dict[str, Any]) -> dict[str, Any]:
        return {name: finish[name](value) if name in finish else value for name, value in row.items()}

    return rows.map(written_for_graphs(finished))


def _fields_of_padding(reader: Any) -> list[UnischemaField]:
    return [UnischemaField(VALID_COLUMN, np.bool_)] if reader.plan.request.last_batch is LastBatch.PAD else []


def _rows_a_call(reader: Any) -> int:
    """Return the number of rows per call into Python, for a dataset of single rows.

    A call returns at most a few megabytes.
    """
    known = [_BYTES_OF_A_FREE_VALUE if None in field.shape else field.decoded_bytes for field in reader.schema]
    row_bytes = sum(_BYTES_OF_A_TEXT if size is None else size for size in known)
    return max(1, min(_ROWS_A_CALL, _BYTES_A_CALL // max(row_bytes, 1)))


OpenReader: TypeAlias = Callable[..., Reader]
"""Function that opens a reader of one shard of a dataset, given `cur_shard=` and `shard_count=`."""


class DatasetFunction:
    """Function from `tf.distribute.InputContext` to `tf.data.Dataset`.

    `make_tf_dataset_fn` returns it. As a context manager, it closes its readers at the end. Not thread-safe.

    Example:
        >>> from petastore.adapters.tensorflow import make_tf_dataset_fn
        >>> with make_tf_dataset_fn(lambda cur_shard, shard_count: None, global_batch_size=64) as dataset_fn:
        ...     dataset_fn.global_batch_size
        64
    """

    def __init__(
        self,
        open_reader: OpenReader,
        global_batch_size: int,
        *,
        map_func: Callable[[dict[str, Any]], Any] | None,
        ragged: TfForm | Mapping[str, TfForm],
        nulls: Nulls,
    ) -> None:
        self.global_batch_size = whole_number(global_batch_size, name="global_batch_size", least=1)
        """Rows per step over all replicas."""
        self._opened: list[Reader] = []
        self._batches_per_step = 1
        self._open_reader, self._map_func, self._ragged, self._nulls = open_reader, map_func, ragged, nulls

    @property
    def reader(self) -> Reader:
        """The reader of this worker; save its state in checkpoints.

        Raises:
            InvalidArgumentError: The function was not called yet, or was called more than once in this process.
        """
        if len(self._opened) != 1:
            raise InvalidArgumentError(
                f"the dataset function must be called once per process, got {len(self._opened)} calls. Pass the "
                "function to strategy.distribute_datasets_from_function once"
            )
        return self._opened[0]

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps per epoch of the reader, the same on every worker.

        A step takes one batch for each replica. In the last step, some replicas may have no batch.

        Raises:
            InvalidArgumentError: As in `reader`.
        """
        replicas = self._batches_per_step * self.reader.shard.count
        return -(-self.reader.steps_per_epoch(self.global_batch_size // replicas) // self._batches_per_step)

    def __call__(self, context: Any) -> Any:
        """Return the dataset of one input pipeline.

        Each element is the batch of one replica.

        Args:
            context: A `tf.distribute.InputContext`.

        Raises:
            InvalidArgumentError: `global_batch_size` is not a multiple of the number of replicas, or the reader's shard
                differs from the input pipeline's.
        """
        replicas, pipelines = context.num_replicas_in_sync, context.num_input_pipelines
        if self.global_batch_size % replicas:
            raise InvalidArgumentError(
                f"global_batch_size must be a multiple of the {replicas:,} replicas, got {self.global_batch_size:,}"
            )
        reader = self._open_reader(cur_shard=context.input_pipeline_id, shard_count=pipelines)
        self._opened.append(reader)
        shard = Shard(context.input_pipeline_id, pipelines)
        if reader.shard != shard:
            raise InvalidArgumentError(
                "open_reader must pass cur_shard and shard_count on to make_reader: this worker is input pipeline "
                f"{shard.index} of {pipelines}, got a reader of shard {reader.shard.index} of {reader.shard.count}"
            )
        self._batches_per_step = max(replicas // pipelines, 1)
        dataset = make_tf_dataset(reader, self.global_batch_size // replicas, ragged=self._ragged, nulls=self._nulls)
        return dataset if self._map_func is None else dataset.map(self._map_func)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for reader in self._opened:
            reader.stop()
        for reader in self._opened:
            reader.join()


def make_tf_dataset_fn(
    open_reader: OpenReader,
    global_batch_size: int,
    *,
    map_func: Callable[[dict[str, Any]], Any] | None = None,
    ragged: TfForm | Mapping[str, TfForm] = "ragged",
    nulls: Nulls = "error",
) -> DatasetFunction:
    """Return a function for `strategy.distribute_datasets_from_function`.

    Each worker has one input pipeline and opens a reader of its shard: input pipeline `i` of `n` reads shard `i` of
    `n`. All workers get the same number of batches. Auto-sharding of the datasets is OFF, so rows are not sharded
    twice.

    Args:
        open_reader: Function that opens a reader, called with `cur_shard=` and `shard_count=`, such as
            `functools.partial(make_reader, url)`.
        global_batch_size: Rows per step over all replicas of all workers; each replica gets an equal part.
        map_func: Function for `tf.data.Dataset.map`: from a dict of tensors to the input of a training step.
        ragged: As in `make_tf_dataset`.
        nulls: As in `make_tf_dataset`.

    Returns:
        The function; its attribute `reader` is this worker's reader. Use it in a `with` block, which closes the reader.

    Raises:
        InvalidArgumentError: `global_batch_size` is not an int above 0.

    Example:
        >>> import functools, petastore, tempfile
        >>> import tensorflow as tf
        >>> schema = petastore.Unischema("ids", [petastore.UnischemaField("id", "int64")])
        >>> url = tempfile.mkdtemp() + "/ids"
        >>> _ = petastore.write_dataset(url, schema, [{"id": i} for i in range(5)])
        >>> strategy = tf.distribute.get_strategy()
        >>> open_reader = functools.partial(petastore.make_reader, url, shuffle_row_groups=False)
        >>> with make_tf_dataset_fn(open_reader, global_batch_size=2) as dataset_fn:
        ...     batches = strategy.distribute_datasets_from_function(dataset_fn)
        ...     dataset_fn.steps_per_epoch, [batch["id"].numpy().tolist() for batch in batches]
        (3, [[0, 1], [2, 3], [4]])
    """
    return DatasetFunction(open_reader, global_batch_size, map_func=map_func, ragged=ragged, nulls=nulls)
