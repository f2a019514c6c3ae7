"""`refuse_other_shards`: whether a reader gives the part that a `keras.distribution` wants of this process."""

from __future__ import annotations

from typing import Any

import keras

from petastore.adapters.full_batches import refuse_unequal_batches
from petastore.errors import InvalidArgumentError
from petastore.plan.request import Shard

__all__ = ["refuse_other_shards"]


def refuse_other_shards(reader: Any, batch_size: int | None, *, is_tf_dataset: bool = False) -> None:
    """Refuses a reader with which Keras would train on some rows twice, or not at all.

    Where a `keras.distribution.Distribution` is set, Keras takes what each process has for its own part of a global
    batch; unless it is told not to, it shards a `tf.data.Dataset` itself. `PyDataset` and `make_tf_dataset` call this
    by themselves; call it for what else is made of a reader, such as a loader of torch.

    Args:
        reader: What is trained on.
        batch_size: Rows of a batch of this process; None is not known.
        is_tf_dataset: Whether Keras gets it as a `tf.data.Dataset`.

    Raises:
        InvalidArgumentError: The reader gives another part than the process has to; Keras would shard once more; or
            batches have no equal parts for the devices. The message says what to write.

    Example:
        >>> import petastore, tempfile
        >>> schema = petastore.Unischema("ids", [petastore.UnischemaField("id", "int64")])
        >>> url = tempfile.mkdtemp() + "/ids"
        >>> _ = petastore.write_dataset(url, schema, [{"id": i} for i in range(10)])
        >>> with petastore.make_reader(url, cur_shard=0, shard_count=2) as reader:
        ...     refuse_other_shards(reader, batch_size=4)  # no distribution is set
    """
    distribution = keras.distribution.distribution()
    if not hasattr(distribution, "data_shard_id"):
        return  # None is set, or Keras is older than what the extra asks for, and does not tell
    processes, replicas = distribution.num_processes, distribution.num_model_replicas
    wanted = Shard(distribution.data_shard_id, min(processes, replicas)) if processes > 1 else Shard()
    if processes > 1 and distribution.auto_shard_dataset:
        if is_tf_dataset and reader.shard.count == 1:
            return  # each process reads everything, and Keras drops the parts of the others
        raise InvalidArgumentError(_keras_shards(reader.shard, distribution) + _to_write(wanted))
    if reader.shard != wanted:
        raise InvalidArgumentError(_other_part(reader.shard, wanted, distribution) + _to_write(wanted))
    if batch_size is not None:
        refuse_unequal_batches(reader, batch_size, parts=max(replicas // processes, 1))


def _keras_shards(found: Shard, distribution: Any) -> str:
    if found.count == 1:
        return f"{distribution!r} would shard a tf.data.Dataset, and nothing else; "
    return (
        f"{distribution!r} would shard again what is part {found.index} of {found.count} already, and drop the rest; "
    )


def _other_part(found: Shard, wanted: Shard, distribution: Any) -> str:
    why = "some rows would be trained on twice" if found.count < wanted.count else "some rows would never be trained on"
    return (
        f"the reader gives part {found.index} of {found.count}, but under {distribution!r} this process has to give "
        f"part {wanted.index} of {wanted.count}: {why}; "
    )


def _to_write(wanted: Shard) -> str:
    return (
        f"write make_reader(..., cur_shard={wanted.index}, shard_count={wanted.count}), which are "
        "distribution.data_shard_id and the smaller of num_processes and num_model_replicas, and "
        "distribution.auto_shard_dataset = False"
    )
