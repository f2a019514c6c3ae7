"""Check that each process reads its own part of a global batch.

JAX shardings over several processes and `keras.distribution` require this.
"""

from __future__ import annotations

import sys
from typing import Any

from petastore.errors import InvalidArgumentError
from petastore.plan.request import LastBatch, Shard

__all__ = ["refuse_other_shards", "refuse_unequal_batches"]


def refuse_unequal_batches(reader: Any, batch_size: int, *, parts: int) -> None:
    """Raise an error if batches cannot be divided equally among all devices.

    Args:
        reader: Reader of the batches.
        batch_size: Number of rows of a batch on this rank.
        parts: Number of parts into which each batch is divided; 1 means that only ranks must have equal batches.

    Raises:
        InvalidArgumentError: `batch_size` is not divisible by `parts`, or `last_batch` gives unequal batches; the
            message then names the values of `last_batch` that fit.
    """
    if batch_size % parts:
        raise InvalidArgumentError(
            f"batch_size must be a multiple of {parts:,}, the number of this process's devices, got {batch_size:,}"
        )
    if reader.plan.request.last_batch is not LastBatch.EVEN or reader.shard.count * parts == 1:
        return
    full, plan = batch_size * reader.steps_per_epoch(batch_size), reader.plan
    ranks = range(reader.shard.count)
    if all(plan.for_shard(Shard(rank, len(ranks))).rows_per_epoch(batch_size) == full for rank in ranks):
        return
    raise InvalidArgumentError(
        "last_batch must be 'drop', 'pad' or 'wrap' where arrays are spread over several devices, got 'even', whose "
        "last batches differ in size. Pass make_reader last_batch='drop' (leaves the remainder out), 'pad' (repeats "
        "rows, False in the column 'valid') or 'wrap' (repeats the epoch's first rows)"
    )


def refuse_other_shards(reader: Any, batch_size: int | None, *, is_tf_dataset: bool = False) -> None:
    """Raise an error if a reader has the wrong shard for `keras.distribution`.

    With a `keras.distribution.Distribution`, Keras treats the batch of each process as its part of a global batch, and
    shards a `tf.data.Dataset` by default. With a wrong shard, some rows are read twice, or never. `PyDataset`,
    `make_tf_dataset` and the torch `DataLoader` call this function; call it yourself for other loaders.

    Args:
        reader: The reader to check.
        batch_size: Rows per batch of this process; None if unknown.
        is_tf_dataset: Whether Keras receives the batches as a `tf.data.Dataset`.

    Raises:
        InvalidArgumentError: The reader has the wrong shard, Keras would shard a second time, or batches cannot be
            divided equally among the devices. The message gives the correct arguments.

    Example:
        >>> import petastore, tempfile
        >>> schema = petastore.Unischema("ids", [petastore.UnischemaField("id", "int64")])
        >>> url = tempfile.mkdtemp() + "/ids"
        >>> _ = petastore.write_dataset(url, schema, [{"id": i} for i in range(10)])
        >>> with petastore.make_reader(url, cur_shard=0, shard_count=2) as reader:
        ...     refuse_other_shards(reader, batch_size=4)  # no distribution is set
    """
    keras: Any = sys.modules.get("keras")
    distribution: Any = keras.distribution.distribution() if hasattr(keras, "distribution") else None
    if not hasattr(distribution, "data_shard_id"):
        return  # no distribution is set, or Keras is older than the extra requires
    processes, replicas = distribution.num_processes, distribution.num_model_replicas
    wanted = Shard(distribution.data_shard_id, min(processes, replicas)) if processes > 1 else Shard()
    if processes > 1 and distribution.auto_shard_dataset:
        if is_tf_dataset and reader.shard.count == 1:
            return  # each process reads all rows, and Keras drops the parts of other processes
        raise InvalidArgumentError(_keras_shards(reader.shard, distribution) + _to_write(wanted))
    if reader.shard != wanted:
        raise InvalidArgumentError(_other_part(reader.shard, wanted, distribution) + _to_write(wanted))
    if batch_size is not None:
        refuse_unequal_batches(reader, batch_size, parts=max(replicas // processes, 1))


def _keras_shards(found: Shard, distribution: Any) -> str:
    if found.count == 1:
        return f"{distribution!r} shards only tf.data.Dataset objects; "
    return (
        f"{distribution!r} would shard the reader's shard {found.index} of {found.count} a second time and drop rows; "
    )


def _other_part(found: Shard, wanted: Shard, distribution: Any) -> str:
    why = "some rows would be trained on twice" if found.count < wanted.count else "some rows would never be trained on"
    return (
        f"the reader has shard {found.index} of {found.count}, but under {distribution!r} this process needs shard "
        f"{wanted.index} of {wanted.count}: {why}; "
    )


def _to_write(wanted: Shard) -> str:
    return (
        f"write make_reader(..., cur_shard={wanted.index}, shard_count={wanted.count}) and "
        "distribution.auto_shard_dataset = False. Here cur_shard is distribution.data_shard_id, and shard_count is the "
        "smaller of distribution.num_processes and distribution.num_model_replicas"
    )
