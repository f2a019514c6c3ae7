"""DataLoader: the batches of a reader as dicts of `jax.Array`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import jax
import numpy as np
from numpy.typing import NDArray

from petastore.adapters.host_arrays import ArrayForm, HostArrays
from petastore.adapters.jax.dtypes import narrowed, refuse_dtypes
from petastore.adapters.jax.layout import layout_of
from petastore.adapters.nulls import Nulls
from petastore.adapters.passes import Passes
from petastore.errors import InvalidArgumentError
from petastore.plan.request import whole_number
from petastore.readers.batch import Batch
from petastore.readers.reader import Reader

__all__ = ["DataLoader"]


class DataLoader:
    """Batches of a reader as dicts from column name to `jax.Array`, for `jax.jit` to take.

    One `for` gives all epochs of the reader; the next `for` starts again from the first row, also after a `break`,
    unless `load_state_dict` came in between. Two loops at once over one loader end the older one with a
    `InvalidArgumentError`. The next batch is on its way to the devices while the current one trains, so two are there.
    Use it from one thread at a time.

    ```text
    column                             in the batch
    numbers, booleans                  jax.Array (rows, *shape), dtype as declared
    int64, uint64 without x64          int32, uint32; a number that does not fit is an error
    float64 without x64                float32, rounded, as JAX does; what is too large is an error
    datetime64, timedelta64            int64 nanoseconds; refused without x64
    a shape with None                  list of NumPy arrays, on the host; or padded
    text, bytes, Decimal               list of Python values, on the host
    missing values                     an error that names the column, or as `nulls` says
    "valid" of last_batch="pad"              bool (rows,)
    ```

    `jax.jit` takes no lists of text: leave such columns out, or take them out of the dict before the step.

    With a `NamedSharding` over the devices of several processes, arrays are global: each process gives its own rows,
    and rows of a batch are `batch_size` times the parts. All batches then have to be full, since arrays over many
    devices have equal parts: `last_batch="even"` is refused, and `"drop"`, `"pad"` and `"wrap"` fit. So a step is
    compiled once, too.

    Args:
        reader: What `make_reader` or `make_batch_reader` gave. The caller stops it, or a `with` block over the loader
            does at its end.
        batch_size: Rows of a batch of this process.
        sharding: Where arrays lie: a `jax.sharding.NamedSharding` whose first dimension is that of rows, a device, or
            None for JAX's default device.
        ragged: What becomes of shapes with None: `"list"`, or `"padded"` or `Padded(value)` with a column
            `<name>_lengths`; see `petastore.adapters.torch.DataLoader`. Padded columns are as long as the longest row
            of their batch, so that a step is compiled for each length, and cannot be global.
        nulls: What stands where a value is missing; see `petastore.adapters.torch.DataLoader`.

    Raises:
        InvalidArgumentError: An argument cannot be, times would need x64, or the reader gives another part, or other
            batches, than the sharding needs; the message says what to write.

    Example:
        >>> import petastore, tempfile
        >>> schema = petastore.Unischema("points", [petastore.UnischemaField("xy", "float32", (2,))])
        >>> url = tempfile.mkdtemp() + "/points"
        >>> _ = petastore.write_dataset(url, schema, [{"xy": np.full(2, i, "float32")} for i in range(5)])
        >>> with petastore.make_reader(url, shuffle_row_groups=False) as reader:
        ...     loader = DataLoader(reader, batch_size=3)
        ...     print(len(loader), [batch["xy"].sum() for batch in loader])
        2 [Array(6., dtype=float32), Array(14., dtype=float32)]
    """

    def __init__(
        self,
        reader: Reader,
        batch_size: int,
        *,
        sharding: Any = None,
        ragged: ArrayForm | Mapping[str, ArrayForm] = "list",
        nulls: Nulls = "error",
    ) -> None:
        self.batch_size = whole_number(batch_size, name="batch_size", least=1)
        """Rows of a batch of this process."""
        self.reader = reader
        """Where the batches come from."""
        refuse_dtypes(reader)
        self._layout = layout_of(sharding, reader, self.batch_size)
        self._arrays = HostArrays(reader, ragged=ragged, nulls=nulls)
        if self._arrays.padded and self._layout.ranks > 1:
            raise InvalidArgumentError(
                f"column {min(self._arrays.padded)!r} is padded to the longest row of a batch, which is another one in "
                "each process, and a global array has one shape; give its values one shape in a transform_spec"
            )
        self._passes = Passes(reader)

    def __len__(self) -> int:
        """Return the number of batches of the `for` under way, or of the next one; the same in every process.

        A `for` gives all epochs; after `load_state_dict`, the batches that are left.

        Raises:
            TypeError: The reader is endless.
        """
        if self.reader.num_epochs is None:
            raise TypeError("a reader with num_epochs=None is endless; reader.steps_per_epoch(batch_size) is an epoch")
        return self._passes.steps(self.batch_size) or 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self._passes.start_ahead(self.batch_size, self._begin)

    def state_dict(self) -> dict[str, Any]:
        """Where training stands: after the last batch that was handed out. Small, JSON, and the same everywhere."""
        return self._passes.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next `for` goes on where `state_dict` was called, and ends where that one would have ended.

        Raises:
            InvalidArgumentError: The state belongs to other data or another order; the message names the difference.
        """
        self.reader.load_state_dict(state)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops the reader, so that `with DataLoader(make_reader(…), 32) as loader:` needs no second block."""
        self.reader.stop()
        self.reader.join()

    def _begin(self, batch: Batch) -> Callable[[], dict[str, Any]]:
        """Sends a batch on its way; JAX does not wait for it."""
        if self._layout.ranks > 1 and batch.num_rows != self.batch_size:
            raise InvalidArgumentError(
                f"this batch has {batch.num_rows:,} rows of {self.batch_size:,}, and a global array has equal parts; "
                "go on from the state with the batch size and the number of processes that it was taken with"
            )
        made = {name: self._put(name, column) for name, column in self._arrays(batch).items()}
        return lambda: made

    def _put(self, name: str, column: NDArray[Any]) -> jax.Array | list[Any]:
        if column.dtype.kind in "OSU":
            return [_text(cell) for cell in column]
        return self._layout.put(narrowed(name, column))


def _text(cell: Any) -> Any:
    """A cell of a column that stays on the host."""
    return cell.tolist() if isinstance(cell, np.ndarray) and cell.dtype.kind in "OSU" else cell
