"""Where the rows of a batch lie: on one device, or over those of a mesh, of this process or of many."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding

from petastore.adapters.full_batches import refuse_unequal_batches
from petastore.errors import InvalidArgumentError
from petastore.plan.request import Shard

__all__ = ["Layout", "layout_of"]


@dataclasses.dataclass(frozen=True)
class Layout:
    """Puts columns of a batch on devices. Immutable; thread-safe."""

    sharding: Any
    """A `jax.sharding.Sharding`, a `jax.Device`, or None for JAX's default device."""

    ranks: int
    """Parts of which a global array is made, each from other processes; 1 where arrays are of this process alone."""

    def put(self, column: Any) -> jax.Array:
        """The array of a column `(rows, ...)` of this process: `(rows × ranks, ...)`, on its way to devices."""
        if self.ranks == 1 and getattr(self.sharding, "is_fully_addressable", True):
            return jax.device_put(column, self.sharding)
        shape = (len(column) * self.ranks, *column.shape[1:])
        return jax.make_array_from_process_local_data(self.sharding, column, shape)


def layout_of(sharding: Any, reader: Any, batch_size: int) -> Layout:
    """How batches of a reader lie on devices.

    Args:
        sharding: A `NamedSharding`, of which the first dimension is that of rows; or a device, or None.
        reader: Gives the batches.
        batch_size: Rows of a batch of this process.

    Raises:
        InvalidArgumentError: The reader gives another part than this process has in the sharding, rows of this process
            do not lie together, batches have no equal parts for the devices, or it is no such sharding.
    """
    if sharding is None or isinstance(sharding, (jax.Device, SingleDeviceSharding)):
        return Layout(sharding, 1)
    if not isinstance(sharding, NamedSharding):
        raise InvalidArgumentError(
            f"sharding={sharding!r} is neither a jax.sharding.NamedSharding, whose first dimension is that of rows, "
            "nor a device"
        )
    wanted, parts = _part_of_this_process(sharding)
    if sharding.is_fully_addressable:
        wanted = reader.shard  # each process has arrays of its own, whatever they are to the others
    if reader.shard != wanted:
        raise InvalidArgumentError(
            f"over {sharding} this process, {jax.process_index()} of {jax.process_count()}, holds part {wanted.index} "
            f"of {wanted.count} of each batch, but its reader gives part {reader.shard.index} of {reader.shard.count}; "
            f"write make_reader(..., cur_shard={wanted.index}, shard_count={wanted.count})" + _by_name(wanted)
        )
    refuse_unequal_batches(reader, batch_size, parts=parts)
    return Layout(sharding, 1 if sharding.is_fully_addressable else wanted.count)


def _by_name(wanted: Shard) -> str:
    if (wanted.index, wanted.count) != (jax.process_index(), jax.process_count()):
        return ""
    return ", which are jax.process_index() and jax.process_count()"


def _part_of_this_process(sharding: NamedSharding) -> tuple[Shard, int]:
    """Which part of the rows the devices of this process hold, and in how many parts."""
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
            f"over {sharding} the rows of process {jax.process_index()} lie apart, among those of others; order the "
            "devices of the mesh by process, as jax.devices() does"
        )
    return Shard(first // together, rows // together), len(held)
