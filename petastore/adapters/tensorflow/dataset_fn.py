"""`make_tf_dataset_fn`: what `strategy.distribute_datasets_from_function` takes; each worker reads its own part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from petastore.adapters.nulls import Nulls
from petastore.adapters.tensorflow.dataset import TfForm, make_tf_dataset
from petastore.errors import InvalidArgumentError
from petastore.plan.request import Shard, whole_number
from petastore.readers.reader import Reader

__all__ = ["DatasetFunction", "OpenReader", "make_tf_dataset_fn"]


class OpenReader(Protocol):
    """Opens a reader of one part of a dataset."""

    def __call__(self, *, cur_shard: int, shard_count: int) -> Reader:
        """The reader of part `cur_shard` of `shard_count`."""


class DatasetFunction:
    """What `make_tf_dataset_fn` gives: call it with a `tf.distribute.InputContext`.

    A context manager: at its end the readers that were opened are stopped. Not thread-safe.

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
        """Rows of a step, of all replicas together."""
        self._opened: list[Reader] = []
        self._batches_per_step = 1
        self._open_reader, self._map_func, self._ragged, self._nulls = open_reader, map_func, ragged, nulls

    @property
    def reader(self) -> Reader:
        """The reader of this worker: its state is that of the training.

        Raises:
            InvalidArgumentError: The function was not called yet, or it was called more than once in this process.
        """
        if len(self._opened) != 1:
            raise InvalidArgumentError(
                f"the function was called {len(self._opened)} times in this process, and there is a reader for each "
                "call; give it to strategy.distribute_datasets_from_function, once"
            )
        return self._opened[0]

    @property
    def steps_per_epoch(self) -> int:
        """Steps of an epoch of the reader, in each of which every replica has a batch; the same on every worker.

        Raises:
            InvalidArgumentError: As `reader`.
        """
        replicas = self._batches_per_step * self.reader.shard.count
        return -(-self.reader.steps_per_epoch(self.global_batch_size // replicas) // self._batches_per_step)

    def __call__(self, context: Any) -> Any:
        """The dataset of one input pipeline; its elements are the batches of one replica.

        Args:
            context: A `tf.distribute.InputContext`.

        Raises:
            InvalidArgumentError: `global_batch_size` does not divide by the replicas, or the reader has another part
                than the pipeline.
        """
        replicas, pipelines = context.num_replicas_in_sync, context.num_input_pipelines
        if self.global_batch_size % replicas:
            raise InvalidArgumentError(
                f"global_batch_size={self.global_batch_size:,} rows cannot be shared equally by {replicas:,} replicas; "
                f"give it a multiple of {replicas:,}"
            )
        reader = self._open_reader(cur_shard=context.input_pipeline_id, shard_count=pipelines)
        self._opened.append(reader)
        shard = Shard(context.input_pipeline_id, pipelines)
        if reader.shard != shard:
            raise InvalidArgumentError(
                f"this worker is input pipeline {shard.index} of {pipelines}, but its reader gives part "
                f"{reader.shard.index} of {reader.shard.count}; pass cur_shard and shard_count on to make_reader"
            )
        self._batches_per_step = max(replicas // pipelines, 1)
        dataset = make_tf_dataset(reader, self.global_batch_size // replicas, ragged=self._ragged, nulls=self._nulls)
        return dataset if self._map_func is None else dataset.map(self._map_func)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
    """A function for `strategy.distribute_datasets_from_function`: each worker opens a reader of its own part.

    The parts are those that `tf.distribute` names: input pipeline `i` of `n`, one pipeline a worker. All workers take
    the same number of batches. Nothing is sharded twice: auto-sharding of the datasets is OFF.

    Args:
        open_reader: Called with `cur_shard=` and `shard_count=`, it opens a reader:
            `functools.partial(make_reader, url, …)`.
        global_batch_size: Rows of a step, of all replicas of all workers together; each replica gets an equal part.
        map_func: As for `tf.data.Dataset.map`: makes of a dict of tensors what a step takes.
        ragged: As for `make_tf_dataset`.
        nulls: As for `make_tf_dataset`.

    Returns:
        The function, in which `reader` is this worker's. Use it in a `with` block, which stops the reader at its end.

    Raises:
        InvalidArgumentError: `global_batch_size` is no number of rows.

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
