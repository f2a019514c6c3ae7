"""A `Batch` is a pytree: its leaves are its columns, and what is made of them is a dict of the same names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax

from petastore.readers.batch import Batch

__all__ = ["register_batch"]


def register_batch() -> None:
    """Makes `petastore.Batch` known to JAX; once a process, by the first import of `petastore.adapters.jax`.

    Leaves are the columns as `batch[name]` gives them, in column order, and JAX names them as it names those of a dict:
    `['id']`. A tree that is put together again is a dict, since a cursor belongs to rows of a dataset and not to what
    was computed of them.

    Raises:
        ValueError: JAX knows it already.

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
