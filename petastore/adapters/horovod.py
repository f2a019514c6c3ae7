"""Horovod elastic training: a data loader whose position is saved with the model.

Horovod commits and restores the position, and the loader divides the remaining rows when the ranks change. With a fixed
number of ranks, use `make_reader(cur_shard=hvd.rank(), shard_count=hvd.size())` and
`petastore.adapters.torch.DataLoader` instead.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, Unpack

from petastore.adapters.torch.loader import DataLoader, LoaderOptions, Made
from petastore.callers import frames_inside_petastore
from petastore.errors import InvalidArgumentError
from petastore.readers.batch import Batch
from petastore.readers.execution.handouts import RaisesAfterErrors
from petastore.readers.reader import Reader

__all__ = ["ElasticDataLoader"]


class ElasticDataLoader(DataLoader[Made]):
    """A data loader for elastic Horovod, with each row once per epoch.

    This also holds if workers join, leave or fail. Pass the loader to `hvd.elastic.TorchState` with the model and the
    optimizer, and use it in a function that `hvd.elastic.run` decorates. `state.commit()` saves the loader's position,
    and every rank has the same position. A restore returns to the saved position. A worker that joins later receives
    the position from rank 0. Each loop reads the current rank and size from Horovod, so no reset callback is needed.

    A `for` loop continues at the position where the previous loop stopped, and ends at the end of the epoch. Only after
    a complete loop, the next loop begins a new epoch. Count epochs in the state, as usual with Horovod:

    ```text
    reader = make_reader(url, cur_shard=hvd.rank(), shard_count=hvd.size())        # 1 epoch
    loader = ElasticDataLoader(reader, batch_size=32)
    state = hvd.elastic.TorchState(model, optimizer, reader=loader, epoch=0)

    @hvd.elastic.run
    def train(state):
        while state.epoch < epochs:
            for batch in state.reader:                                             # or the rest of an epoch
                ...                                                                # a step
                state.commit()
            state.epoch += 1
    ```

    If a worker fails, the rows of steps after the last commit are read again, because the restored model has not seen
    them. If ranks join near the end of an epoch, fewer rows than ranks may remain. Some ranks then get an empty batch,
    and the first such batch gives a warning. The mean loss of an empty batch is NaN; a sum of losses divided by
    `batch_size` is correct for any batch.

    Args:
        reader: As in `DataLoader`. Its shard is used until Horovod changes the ranks. Pass `last_batch="even"` to it,
            so that no row is lost or repeated.
        batch_size: As in `DataLoader`.
        collate_fn: As in `DataLoader`.
        **options: As in `DataLoader`.

    Raises:
        InvalidArgumentError: Horovod with torch is not installed, or an option is not supported.
    """

    def __init__(
        self,
        reader: Reader,
        batch_size: int = 1,
        collate_fn: Callable[[list[dict[str, Any]]], Made] | None = None,
        **options: Unpack[LoaderOptions],
    ) -> None:
        _register()
        super().__init__(reader, batch_size, collate_fn, **options)
        self._make_of_rows, self._make = self._make, self._made_of_any
        self._is_told_of_empty = False

    def __iter__(self) -> Iterator[Made]:  # type: ignore[override]
        return RaisesAfterErrors(self._resharded())

    def _resharded(self) -> Iterator[Made]:
        import horovod.torch as hvd

        # Continue at the position of training. With `device=`, the reader is one batch ahead of training, and `reshard`
        # alone would skip this prefetched batch.
        self.load_state_dict(self.state_dict())
        self.reader.reshard(hvd.rank(), hvd.size())
        yield from super().__iter__()
        self.reader.reset()  # otherwise the next loop would resume at the end of this epoch

    def _made_of_any(self, batch: Batch) -> Any:
        if batch.num_rows == 0 and not self._is_told_of_empty:
            self._is_told_of_empty = True
            warnings.warn(
                f"a batch of rank {self.reader.shard.index} has no rows, because the epoch had fewer rows left than "
                f"ranks ({self.reader.shard.count}). Its mean loss is NaN, and would set all weights to NaN. Use "
                f"errors.sum() / {self.batch_size} instead of a mean",
                UserWarning,
                stacklevel=frames_inside_petastore() + 1,
            )
        return self._make_of_rows(batch)


class _Handler:
    """Handler that commits, restores and broadcasts the position of a loader.

    `TorchState` calls its methods, which follow the protocol of Horovod's `StateHandler`.
    """

    def __init__(self, value: ElasticDataLoader[Any]) -> None:
        self.set_value(value)

    def set_value(self, value: ElasticDataLoader[Any]) -> None:
        """Replace the loader, and save its state."""
        self.value = value
        self.save()

    def save(self) -> None:
        """Save the loader's state for `restore`; `state.commit()` calls this method."""
        self._saved = self.value.state_dict()

    def restore(self) -> None:
        """Move the loader back to the last saved state."""
        self.value.load_state_dict(self._saved)

    def sync(self) -> None:
        """Move the loader of every rank to the position of rank 0."""
        import horovod.torch as hvd

        self.value.load_state_dict(hvd.broadcast_object(self.value.state_dict(), root_rank=0))


def _register() -> None:
    """Register the loader's state handler with Horovod, once per process."""
    try:
        from horovod.torch.elastic.state import get_handler_registry
    except ImportError:
        raise InvalidArgumentError(
            "ElasticDataLoader needs Horovod built with torch, which is not installed here. Install it with "
            "HOROVOD_WITH_PYTORCH=1 pip install --no-cache-dir horovod"
        ) from None
    entry = (ElasticDataLoader, _Handler)
    if entry not in get_handler_registry():
        get_handler_registry().append(entry)
