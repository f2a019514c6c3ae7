"""A loader in the state of Horovod's elastic training: committed, restored and shared anew with everything else."""

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
    """Batches for `hvd.elastic.run`: each row once an epoch, whoever comes, goes or dies meanwhile.

    Give it to `hvd.elastic.TorchState` beside the model and the optimizer: a commit keeps its place, which is the same
    on every rank, a restore goes back there, and a worker that comes late gets it from rank 0. Each loop asks Horovod
    which rank this is now, and of how many, so that no reset callback is needed.

    A `for` goes on where the one before was left, and ends where that one would have ended; only after a loop that came
    to its end, a new pass begins. What comes after a loop is therefore counted in the state, as ever with Horovod:

    ```text
    reader = make_reader(url, cur_shard=hvd.rank(), shard_count=hvd.size())        # num_epochs=1: a loop is an epoch
    loader = ElasticDataLoader(reader, batch_size=32)
    state = hvd.elastic.TorchState(model, optimizer, reader=loader, epoch=0)

    @hvd.elastic.run
    def train(state):
        while state.epoch < epochs:
            for batch in state.reader:                                             # or what is left of the epoch
                ...                                                                # a step
                state.commit()
            state.epoch += 1
    ```

    Rows of steps after the last commit are read again when a worker dies, since the model forgets these steps as well.
    When ranks were added near the end of an epoch, it may have fewer rows left than there are ranks: some get a batch
    without rows then, whose mean loss is NaN; the first one warns. A sum of losses, divided by the batch size, is right
    for any batch.

    Args:
        reader: As in `DataLoader`; its shard is what it begins with. Of `last_batch`, only `"even"` reads each row
            once.
        batch_size: As in `DataLoader`.
        collate_fn: As in `DataLoader`.
        **options: As in `DataLoader`.

    Raises:
        InvalidArgumentError: Horovod with torch is not installed, or an option cannot be honoured.
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

        # A reader that was moved on purpose is gone on with; else a loop begins a new pass.
        self.load_state_dict(self.state_dict())
        self.reader.reshard(hvd.rank(), hvd.size())
        yield from super().__iter__()
        self.reader.reset()  # now, so that a state which is taken from here on says that the pass is done

    def _made_of_any(self, batch: Batch) -> Any:
        if batch.num_rows == 0 and not self._is_told_of_empty:
            self._is_told_of_empty = True
            warnings.warn(
                f"a batch of rank {self.reader.shard.index} has no rows: fewer of the epoch were left than there are "
                f"ranks ({self.reader.shard.count}). Its mean loss is NaN, and so would all weights be after the step; "
                f"write errors.sum() / {self.batch_size}, which is right for any batch, in the place of a mean",
                UserWarning,
                stacklevel=frames_inside_petastore() + 1,
            )
        return self._make_of_rows(batch)


class _Handler:
    """What a `TorchState` does with a loader; it follows the protocol of Horovod's `StateHandler`."""

    def __init__(self, value: ElasticDataLoader[Any]) -> None:
        self.set_value(value)

    def set_value(self, value: ElasticDataLoader[Any]) -> None:
        """Another loader takes the place of this one."""
        self.value = value
        self.save()

    def save(self) -> None:
        """Keeps what is committed."""
        self._saved = self.value.state_dict()

    def restore(self) -> None:
        """Goes back to what was committed last."""
        self.value.load_state_dict(self._saved)

    def sync(self) -> None:
        """Goes to where rank 0 stands. It knows the place of all: it is the same after the same step."""
        import horovod.torch as hvd

        self.value.load_state_dict(hvd.broadcast_object(self.value.state_dict(), root_rank=0))


def _register() -> None:
    """Tells Horovod, once in a process, who handles loaders."""
    try:
        from horovod.torch.elastic.state import get_handler_registry
    except ImportError:
        raise InvalidArgumentError(
            "ElasticDataLoader needs Horovod built with torch, which is not installed here"
        ) from None
    entry = (ElasticDataLoader, _Handler)
    if entry not in get_handler_registry():
        get_handler_registry().append(entry)
