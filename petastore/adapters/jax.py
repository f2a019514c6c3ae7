"""JAX: batches as dicts of `jax.Array`, on one device or sharded over many.

The devices may belong to several processes.

Without `jax_enable_x64`, columns of 64 bits become 32 bits, and a value that does not fit raises an error. JAX itself
truncates such integers silently: 2**40 + 5 becomes 5.

The next batch is copied to the devices while the model trains on the current batch. Importing this module also
registers `petastore.Batch`, which `reader.iter_batches` yields, as a pytree.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self

import numpy as np

from petastore.errors import DecodeError, InvalidArgumentError, MissingExtraError

try:
    import jax
    from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding
except ImportError:
    raise MissingExtraError("petastore.adapters.jax", package="jax", extra="jax") from None
from numpy.typing import NDArray

from petastore.adapters.column_plans import ArrayForm, HostArrays
from petastore.adapters.epoch_tracker import EpochTracker, epochs_of
from petastore.adapters.global_batches import refuse_unequal_batches
from petastore.adapters.nulls import Nulls
from petastore.distributed.engines import jax_all_gather
from petastore.monitoring.diagnosis import Diagnosis
from petastore.monitoring.waits import timed
from petastore.plan.request import Shard, whole_number
from petastore.readers.batch import Batch
from petastore.readers.reader import Reader

__all__ = ["DataLoader", "jax_all_gather"]


_WHAT_TO_DO = (
    "Write jax.config.update('jax_enable_x64', True) before the first array, leave the column out with schema_fields, "
    "or convert it in a transform_spec"
)


def refuse_dtypes(reader: Any) -> None:
    """Raise an error for columns of times if 64-bit types are disabled in JAX.

    Times become nanoseconds, which need 64 bits.

    Raises:
        InvalidArgumentError: A column has times.
    """
    if jax.dtypes.canonicalize_dtype(np.int64) == np.dtype(np.int64):
        return
    for field in reader.schema:
        if field.dtype.kind in "mM":
            raise InvalidArgumentError(
                f"jax_enable_x64 must be set for column {field.name!r}, because {field.dtype_name} becomes nanoseconds "
                f"in 64 bits, got 32 bits. {_WHAT_TO_DO}"
            )


def narrowed(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Return the values in the dtype that JAX uses.

    Integers keep their values, and floats are rounded, as in JAX. An array that already has the dtype is returned
    itself.

    Raises:
        DecodeError: A number is out of range of the 32-bit dtype.

    Example:
        >>> narrowed("id", np.array([7])).dtype, narrowed("id", np.array([2**40 + 5]))
        Traceback (most recent call last):
        petastore.errors.DecodeError: column 'id': values must fit into int32, because JAX has no int64 unless
            jax_enable_x64 is set, got 1,099,511,627,781. Write jax.config.update('jax_enable_x64', True) before the
            first array, leave the column out with schema_fields, or convert it in a transform_spec
    """
    dtype = np.dtype(jax.dtypes.canonicalize_dtype(values.dtype))
    if dtype == values.dtype:
        return values
    if values.dtype.kind in "iu":
        limits = np.iinfo(dtype)
        outside = (values < limits.min) | (values > limits.max)
        if outside.any():
            raise _does_not_fit(name, f"{int(values[outside][0]):,}", values.dtype, dtype)
        return values.astype(dtype)
    with np.errstate(over="ignore"):
        made = values.astype(dtype)
    too_large = np.isinf(made) & ~np.isinf(values)
    if too_large.any():
        raise _does_not_fit(name, str(values[too_large][0]), values.dtype, dtype)
    return made


def _does_not_fit(name: str, value: str, found: np.dtype[Any], dtype: np.dtype[Any]) -> DecodeError:
    return DecodeError(
        f"values must fit into {dtype}, because JAX has no {found} unless jax_enable_x64 is set, got {value}. "
        f"{_WHAT_TO_DO}",
        column=name,
    )


@dataclasses.dataclass(frozen=True)
class DevicePlacement:
    """Placement of batch columns on devices. Immutable; thread-safe."""

    sharding: Any
    """A `jax.sharding.Sharding`, a `jax.Device`, or None for JAX's default device."""

    ranks: int
    """Number of processes whose parts form a global array; 1 if arrays belong to this process only."""

    def put(self, column: Any) -> jax.Array:
        """Start to copy a column to the devices, and return its `jax.Array`.

        A column `(rows, ...)` of this process becomes a global array `(rows × ranks, ...)`.
        """
        if self.ranks == 1 and getattr(self.sharding, "is_fully_addressable", True):
            return jax.device_put(column, self.sharding)
        shape = (len(column) * self.ranks, *column.shape[1:])
        return jax.make_array_from_process_local_data(self.sharding, column, shape)


def layout_of(sharding: Any, reader: Any, batch_size: int) -> DevicePlacement:
    """Return the placement of a reader's batches on devices, and check the reader.

    Args:
        sharding: A `NamedSharding` whose first dimension is the rows, a device, or None.
        reader: Reader of the batches.
        batch_size: Rows of a batch of this process.

    Raises:
        InvalidArgumentError: The reader has another shard than this process in the sharding, the rows of this process
            are not contiguous, batches cannot be divided equally among the devices, or the type of sharding is not
            supported.
    """
    if sharding is None or isinstance(sharding, (jax.Device, SingleDeviceSharding)):
        return DevicePlacement(sharding, 1)
    if not isinstance(sharding, NamedSharding):
        raise InvalidArgumentError(
            "sharding must be None, a device, or a jax.sharding.NamedSharding whose first dimension is the rows, got "
            f"{sharding!r}"
        )
    wanted, parts = _part_of_this_process(sharding)
    if sharding.is_fully_addressable:
        wanted = reader.shard  # each process has its own arrays, independent of other processes
    if reader.shard != wanted:
        raise InvalidArgumentError(
            f"the reader's shard must be {wanted.index} of {wanted.count} for process {jax.process_index()} of "
            f"{jax.process_count()} over {sharding}, got {reader.shard.index} of {reader.shard.count}. "
            f"Write make_reader(..., cur_shard={wanted.index}, shard_count={wanted.count})" + _by_name(wanted)
        )
    refuse_unequal_batches(reader, batch_size, parts=parts)
    return DevicePlacement(sharding, 1 if sharding.is_fully_addressable else wanted.count)


def _by_name(wanted: Shard) -> str:
    if (wanted.index, wanted.count) != (jax.process_index(), jax.process_count()):
        return ""
    return ", which are jax.process_index() and jax.process_count()"


def _part_of_this_process(sharding: NamedSharding) -> tuple[Shard, int]:
    """Return the shard of rows on this process's devices, and its number of parts.

    Each part is a range of rows that one or several devices of this process hold.

    Raises:
        InvalidArgumentError: The rows of this process are not contiguous.
    """
    rows = sharding.mesh.size
    of_rows = NamedSharding(sharding.mesh, PartitionSpec(*sharding.spec[:1]))
    held = {
        (index[0].start or 0, rows if index[0].stop is None else index[0].stop)
        for index in of_rows.addressable_devices_indices_map((rows,)).values()
    }
    first, stop = min(held)[0], max(held)[1]
    together = int(np.sum([last - begin for begin, last in held]))
    if together != stop - first or rows % together or first % together:
        raise InvalidArgumentError(
            f"the rows of process {jax.process_index()} must be contiguous, got {sharding}, which interleaves them "
            "with rows of other processes. Order the devices of the mesh by process, as jax.devices() does"
        )
    return Shard(first // together, rows // together), len(held)


def register_batch() -> None:
    """Register `petastore.Batch` with JAX as a pytree.

    Importing `petastore.adapters.jax` calls this function once per process. The leaves are the columns, in column
    order. JAX names the leaves like the values of a dict: `['id']`. Unflattening returns a dict instead of a batch,
    because computed values have no position in a dataset.

    Raises:
        ValueError: The class is already registered.

    Example:
        >>> import petastore, tempfile
        >>> schema = petastore.Unischema("points", [petastore.UnischemaField("xy", "float32", (2,))])
        >>> url = tempfile.mkdtemp() + "/points"
        >>> _ = petastore.write_dataset(url, schema, [{"xy": [i, -i]} for i in range(3)])
        >>> with petastore.make_reader(url, shuffle_row_groups=False) as reader:
        ...     (batch,) = reader.iter_batches(3)
        >>> jax.tree.map(lambda column: column.max(axis=0).tolist(), batch)
        {'xy': [2.0, 0.0]}
        >>> jax.jit(lambda batch: batch["xy"].sum(axis=0))(batch)
        Array([ 3., -3.], dtype=float32)
    """
    jax.tree_util.register_pytree_with_keys(Batch, _with_keys, _put_together, _flat)


def _flat(batch: Batch) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    columns = batch.columns
    return tuple(columns.values()), tuple(columns)


def _with_keys(batch: Batch) -> tuple[tuple[tuple[Any, Any], ...], tuple[str, ...]]:
    columns = batch.columns
    return tuple((jax.tree_util.DictKey(name), column) for name, column in columns.items()), tuple(columns)


def _put_together(names: tuple[str, ...], leaves: Iterable[Any]) -> dict[str, Any]:
    return dict(zip(names, leaves, strict=True))


class DataLoader:
    """A data loader for JAX: yields batches as dicts from column name to `jax.Array`.

    One `for` loop covers all epochs of the reader. The next `for` starts again from the first row, also after a
    `break`, unless `load_state_dict` was called in between. Starting a second loop while one is running ends the first
    with an `InvalidArgumentError`. The next batch is copied to the devices while the model trains on the current batch,
    so the devices hold two batches. Use the loader from one thread at a time.

    ```text
    column                             in the batch
    numbers, booleans                  jax.Array (rows, *shape), dtype as declared
    int64, uint64 without x64          int32, uint32; an overflow is an error
    float64 without x64                float32, rounded as in JAX; an overflow is an error
    datetime64, timedelta64            int64 nanoseconds; an error without x64
    a shape with None                  list of NumPy arrays, on the host; or padded
    text, bytes, Decimal               list of Python values, on the host
    missing values                     an error that names the column, unless `nulls` is set
    "valid" of last_batch="pad"        bool (rows,)
    ```

    "x64" is the JAX option `jax_enable_x64`. `jax.jit` does not accept lists of text: do not read such columns, or
    remove them from the dict before the step.

    With a `NamedSharding` over the devices of several processes, arrays are global: each process contributes its own
    rows, and a global batch has `batch_size` rows per process. All batches must be full, because all devices hold parts
    of equal size: use `last_batch="drop"`, `"pad"` or `"wrap"`; `"even"` is an error. A step is then compiled once.

    Args:
        reader: The reader that `make_reader` or `make_batch_reader` returned. Close it yourself, or use the loader in a
            `with` block, which closes it.
        batch_size: Rows per batch of this process.
        sharding: Placement of the arrays: a `jax.sharding.NamedSharding` whose first dimension is the rows, a device,
            or None for JAX's default device.
        ragged: Type of columns whose shape has None: `"list"`; or `"padded"` or `Padded(value)`, with a column
            `<name>_lengths`; see `petastore.adapters.torch.DataLoader`. A padded column is as long as the longest row
            of its batch, so JAX compiles the step again for each new length, and the column cannot be a global array.
        nulls: Treatment of missing values; see `petastore.adapters.torch.DataLoader`.

    Raises:
        InvalidArgumentError: An argument is invalid, a column of times is read without `jax_enable_x64`, or the
            reader's shard or batches do not match the sharding. The message gives the correct arguments.

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
        """Rows per batch of this process."""
        self.reader = reader
        """The reader of the batches."""
        refuse_dtypes(reader)
        self._layout = layout_of(sharding, reader, self.batch_size)
        self._arrays = HostArrays(reader, ragged=ragged, nulls=nulls)
        if self._arrays.padded and self._layout.ranks > 1:
            raise InvalidArgumentError(
                f"ragged= must not pad columns of global arrays, got column {min(self._arrays.padded)!r}, whose "
                "padded length differs between processes. Give its values one shape in a transform_spec"
            )
        self._tracker = EpochTracker(reader)

    def __len__(self) -> int:
        """Return the number of batches of the current `for` loop, or of the next one.

        The number is the same in every process. A loop covers all epochs of the reader; after `load_state_dict`, it has
        the remaining batches.

        Raises:
            TypeError: The reader is endless.
        """
        epochs_of(self.reader.num_epochs)  # raises an error for an endless reader
        return self._tracker.steps(self.batch_size) or 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self._tracker.start_ahead(self.batch_size, timed(self._begin, self.reader, "copy"))

    def diagnosis(self) -> Diagnosis:
        """Return whether the input is the bottleneck, in which stage, and what to change.

        See `Reader.diagnosis`.
        """
        return self.reader.diagnosis()

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last yielded batch, as a small JSON dict.

        The dict is the same in every process.
        """
        return self._tracker.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state of `state_dict`.

        The next `for` loop yields the remaining batches of the saved loop.

        Raises:
            InvalidArgumentError: The state was saved with another dataset or row order; the message names the
                difference.
        """
        self.reader.load_state_dict(state)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the reader, so that `with DataLoader(make_reader(…), 32)` closes it."""
        self.reader.close()

    def _begin(self, batch: Batch) -> Callable[[], dict[str, Any]]:
        """Start to copy a batch to the devices; return a function that returns the copied columns by name.

        Raises:
            InvalidArgumentError: The arrays are global, and the batch has fewer or more than `batch_size` rows.
        """
        if self._layout.ranks > 1 and batch.num_rows != self.batch_size:
            raise InvalidArgumentError(
                f"batches of global arrays must have {self.batch_size:,} rows, got {batch.num_rows:,}. Resume with "
                "the batch size and the number of processes with which the state was saved"
            )
        made = {name: self._put(name, column) for name, column in self._arrays(batch).items()}
        return lambda: made

    def _put(self, name: str, column: NDArray[Any]) -> jax.Array | list[Any]:
        if column.dtype.kind in "OSU":
            return [_text(cell) for cell in column]
        return self._layout.put(narrowed(name, column))


def _text(cell: Any) -> Any:
    """Return a cell of a column that stays on the host; text arrays become lists."""
    return cell.tolist() if isinstance(cell, np.ndarray) and cell.dtype.kind in "OSU" else cell


register_batch()
