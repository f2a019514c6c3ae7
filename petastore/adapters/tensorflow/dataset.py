"""`make_tf_dataset`: the batches or the rows of a reader as a `tf.data.Dataset`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import tensorflow as tf

from petastore.adapters.asked_of_keras import refuse_what_keras_would_shard
from petastore.adapters.nulls import Nulls, nulls_of_reader
from petastore.adapters.passes import Passes
from petastore.adapters.ragged import Padded, forms_of, refuse_ragged_windows
from petastore.adapters.received import forgotten, received_of
from petastore.adapters.runs import Run, runs_of
from petastore.adapters.stored_nulls import refuse_stored_nulls
from petastore.adapters.tensorflow.columns import columns_of_field
from petastore.adapters.tensorflow.crossing import Crossing, written_for_graphs
from petastore.adapters.tensorflow.quick_iterator import iterated_quickly
from petastore.adapters.tensorflow.tensor_column import TensorColumn
from petastore.adapters.tensorflow.whole_passes import whole_passes
from petastore.errors import InvalidArgumentError
from petastore.plan.request import Tail
from petastore.readers.assembly.assemble import VALID_COLUMN
from petastore.readers.reader import Reader
from petastore.schema.field import UnischemaField

__all__ = ["TfForm", "dataset_of_fields", "make_tf_dataset"]

TfRaggedWord: TypeAlias = Literal["ragged", "dense", "padded"]
"""What becomes of shapes with None, in a word; see `make_tf_dataset`."""

TfForm: TypeAlias = TfRaggedWord | Padded
"""What becomes of a column whose shape has None."""

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
    """The reader's rows or batches as a `tf.data.Dataset` of dicts from column name to tensor.

    One iteration gives all epochs of the reader; each further one (`repeat()`, the next epoch of `fit`) starts again
    from the first row. Two iterations at once end the older one with an error. `cardinality()` is that of a whole
    iteration; the one that goes on from a state gives what is left. A dataset of a sharded reader has its auto-sharding
    set to OFF: TensorFlow would shard what is sharded already, and drop most of it without a word. The prefetch that
    TensorFlow adds unasked is off too, since the reader works ahead by itself: after a `map` that takes time, add
    `prefetch` yourself. `state_after` says where training stands.

    ```text
    field                            batches                                rows
    numbers, booleans                (None, *shape), dtype as declared      shape
    a shape with None                RaggedTensor (None, *shape)            tensor, None where the shape is free
    text, bytes                      tf.string                              tf.string
    Decimal                          tf.string: "1.5" of 1.50               tf.string
    datetime64, timedelta64          int64 nanoseconds                      int64 nanoseconds
    missing values                   an error that names the column, or as `nulls` says
    "valid" of last_batch="pad"            bool (None,)                           bool ()
    ```

    Errors come out of the iterator as TensorFlow's own, with the message of the reader inside.

    Args:
        reader: What `make_reader` or `make_batch_reader` gave. Stop it after the last iteration, not before.
        batch_size: Rows of a batch on this rank, as the reader cuts them (its `last_batch` decides about the last one).
            None gives rows.
        ragged: What batches have of shapes with None: `"ragged"` tensors; or `"dense"` ones (None, *shape), where a
            batch whose cells differ in shape is an error; or `"padded"` ones with zeros
            (`petastore.adapters.ragged.Padded(value)`: with a value), (None, *shape), and a column
            `<name>_lengths` of int64 that says how much of each row is real: (None,) where one dimension is free, else
            (None, free dimensions). One form for all, or a dict by column name. Text stays ragged.
        nulls: What stands where a value is missing: `"error"` refuses, naming the column; `"mask"` puts 0, an empty
            text or an empty array there, and adds a column `<name>_valid` of bool, (None,), True where a value is
            there; a value stands there itself. One of them for all nullable columns, or a dict by column name, where
            what is not named is `"error"`. In windows each row of a window is asked for itself: (None, length).

    Returns:
        A `tf.data.Dataset`. It lives in this process: datasets made from Python cannot be sent to a tf.data service.

    Raises:
        InvalidArgumentError: A column is of a type that TensorFlow does not have, `batch_size` is no number of rows,
            `ragged` or `nulls` cannot be, or a `keras.distribution` that is set would shard once more, or have other
            parts: when the dataset is made, and also when an iteration of it begins, where one of what was made of it
                (`map`)
            cannot ask any more.

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
    """`make_tf_dataset` of some of the reader's columns: the others are read, and not handed over."""
    whole = isinstance(batch_size, (int, np.integer)) and not isinstance(batch_size, bool) and batch_size >= 1
    if batch_size is not None and not whole:
        raise InvalidArgumentError(
            f"batch_size is a number of rows from 1, or None for rows, but {batch_size!r} was given"
        )
    handed = [*fields, *_fields_of_padding(reader)]
    forms = forms_of(ragged, handed, known=get_args(TfRaggedWord))
    refuse_ragged_windows(reader, forms, instead="take it as a ragged tensor")
    if forms and batch_size is None:
        raise InvalidArgumentError(
            f"ragged={ragged!r} is about batches, and rows were asked for; give batch_size, or leave it out: rows have "
            "shapes of their own"
        )
    filled = nulls_of_reader(nulls, reader)
    refuse_stored_nulls(reader, filled)
    columns = [
        column
        for field in handed
        for column in columns_of_field(
            field,
            form=forms.get(field.name),
            null=filled.get(field.name),
            rows=batch_size is None,
            windows=reader.ngram is not None and field.name != VALID_COLUMN,
        )
    ]

    def ask_keras() -> None:
        refuse_what_keras_would_shard(reader, batch_size, is_tf_dataset=True)

    ask_keras()
    passes = Passes(reader)
    if batch_size is None:
        dataset = _rows(reader, passes, columns)
    else:
        dataset = _batches(reader, passes, int(batch_size), columns)
    options = tf.data.Options()
    # The reader works ahead in threads of its own: another hand-over for each batch would only cost.
    options.experimental_optimization.inject_prefetch = False
    if reader.shard.count > 1:
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return iterated_quickly(dataset.with_options(options), ask_keras)


def _batches(reader: Any, passes: Passes, batch_size: int, columns: list[TensorColumn]) -> Any:
    """A dataset of batches."""
    crossing = Crossing(columns, reader.stacked_columns)
    # What a batch has in columns that are not dense depends on all of its rows.
    are_dense = all(column.is_dense for column in columns)
    most, cut = (_BATCHES_A_CALL, cut_run) if are_dense else (1, lambda _, run: tf.data.Dataset.from_tensors(run))
    return whole_passes(
        lambda runs: crossing.dataset(runs, cut),
        lambda: runs_of(received_of(reader).noted(passes.start(batch_size)), most=most),
        elements=_of_pass(reader, reader.steps_per_epoch(batch_size)),
        count=lambda run: len(run.sizes),
    )


def _of_pass(reader: Any, elements: int) -> int | None:
    """What a pass gives, told what an epoch does; None is without end."""
    return None if reader.num_epochs is None else elements * reader.num_epochs


def cut_run(sizes: Any, columns: Any) -> Any:
    """The batches of a run; one without rows is a run of its own, of which `rebatch` makes nothing."""
    run = tf.data.Dataset.from_tensors(columns)
    without_rows = tf.cast(sizes[0] == 0, tf.int64)
    return _rebatched(run, tf.maximum(sizes, 1)).concatenate(run.take(without_rows))


def _rebatched(dataset: Any, sizes: Any) -> Any:
    """What `Dataset.rebatch` gives, which maps all columns to themselves first."""
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


def _rows(reader: Any, passes: Passes, columns: list[TensorColumn]) -> Any:
    """A dataset of rows."""
    crossing = Crossing(columns, reader.stacked_columns)
    rows = whole_passes(
        lambda runs: crossing.dataset(runs, lambda _, run: tf.data.Dataset.from_tensors(run).unbatch()),
        lambda: _runs_of_rows(reader, passes),
        elements=_of_pass(reader, reader.num_rows),
        count=lambda run: sum(run.sizes),
    )
    finish = {column.name: column.finish_row for column in columns if column.finish_row is not None}
    if not finish:
        return rows

    def finished(row: dict[str, Any]) -> dict[str, Any]:
        return {name: finish[name](value) if name in finish else value for name, value in row.items()}

    return rows.map(written_for_graphs(finished))


def _runs_of_rows(reader: Any, passes: Passes) -> Iterator[Run]:
    """The rows that iterating the reader gives, in that order, many at a time."""
    # Larger batches would each be ordered lane by lane, and so be mixed worse than the rows one by one.
    if reader.batched_output:
        forgotten(reader)
        return runs_of(passes.start(reader.rows_per_batch), most=1)
    rows = received_of(reader).noted(passes.start(reader.rows_per_batch))
    return runs_of(rows, most=_rows_a_call(reader))


def _fields_of_padding(reader: Any) -> list[UnischemaField]:
    return [UnischemaField(VALID_COLUMN, np.bool_)] if reader.plan.request.last_batch is Tail.PAD else []


def _rows_a_call(reader: Any) -> int:
    """Rows that Python hands over at once where users see single rows: some megabytes of them."""
    known = [_BYTES_OF_A_FREE_VALUE if None in field.shape else field.decoded_bytes for field in reader.schema]
    row_bytes = sum(_BYTES_OF_A_TEXT if size is None else size for size in known)
    return max(1, min(_ROWS_A_CALL, _BYTES_A_CALL // max(row_bytes, 1)))
