"""JAX: a reader's batches as dicts of `jax.Array`, on one device or over the devices of many processes.

What a step gets is a dict, which is a pytree as it is, and the next one is put on devices while the current one trains.
A `petastore.Batch`, which `reader.iter_batches` gives, is a pytree too from here on.
"""

from __future__ import annotations

from petastore.errors import MissingExtraError

try:
    import jax as _jax  # noqa: F401
except ImportError:
    raise MissingExtraError("petastore.adapters.jax", package="jax", extra="jax") from None

from petastore.adapters.jax.loader import DataLoader
from petastore.adapters.jax.tree import register_batch
from petastore.distributed.gathering import jax_all_gather

__all__ = ["DataLoader", "jax_all_gather"]

register_batch()
