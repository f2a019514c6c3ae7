"""Tests of batches as JAX pytrees of their columns, after the adapter is imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import petastore.adapters.jax  # noqa: F401 - its import makes a batch known to JAX
from petastore import Batch, Unischema, UnischemaField, make_reader, write_dataset


def batches_of(url: str, size: int = 11, **asked: Any) -> list[Batch]:
    with make_reader(url, shuffle_row_groups=False, **asked) as reader:
        return list(reader.iter_batches(size))


def test_tree_map_over_a_batch_keeps_column_names(numbered: Callable[..., str]) -> None:
    batch = batches_of(numbered())[1]
    mapped = jax.tree.map(lambda column: column * 2, batch)
    assert (type(mapped), list(mapped)) == (dict, ["id", "x", "y"])
    for name, column in mapped.items():
        np.testing.assert_array_equal(column, batch[name] * 2)
        assert column.dtype == batch[name].dtype


def test_batch_leaves_are_named_columns_in_order(numbered: Callable[..., str]) -> None:
    batch = batches_of(numbered(), schema_fields=["y", "id"])[0]
    leaves = jax.tree.leaves(batch)
    assert [leaf.tolist() for leaf in leaves] == [column.tolist() for column in batch.values()]
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(batch)]
    assert paths == [f"[{name!r}]" for name in batch]


def test_batches_of_a_reader_have_the_same_tree_structure(numbered: Callable[..., str]) -> None:
    first, second, *_ = batches_of(numbered())
    together = jax.tree.map(lambda one, other: np.concatenate([one, other]), first, second)
    assert together["id"].tolist() == list(range(22))


def test_jit_step_accepts_batches_and_is_compiled_once(numbered: Callable[..., str]) -> None:
    compiled = 0

    def of_one_batch(weights: Any, batch: Any) -> Any:
        nonlocal compiled
        compiled += 1
        return weights - jax.grad(lambda w: ((batch["x"] @ w - batch["y"]) ** 2).mean())(weights)

    step = jax.jit(of_one_batch)
    for batch in batches_of(numbered(), last_batch="drop"):
        taken = step(np.zeros(4, np.float32), batch)
    assert compiled == 1
    np.testing.assert_array_equal(taken, step(np.zeros(4, np.float32), batch.columns))


def test_jax_rejects_columns_that_are_not_numeric(tmp_path: Any) -> None:
    schema = Unischema("Named", [UnischemaField("name", str), UnischemaField("age", np.int32, nullable=True)])
    url = str(tmp_path / "named")
    write_dataset(url, schema, [{"name": "a", "age": 1}, {"name": "b", "age": None}])
    (batch,) = batches_of(url, 2)
    assert jax.tree.map(lambda column: column.tolist(), batch) == {"name": ["a", "b"], "age": [1, None]}
    with pytest.raises(TypeError, match=r"batch\['name'\]"):
        jax.jit(lambda batch: batch["age"])(batch)
    (ages,) = batches_of(url, 2, schema_fields=["age"])
    with pytest.raises(ValueError, match="masked arrays are not supported"):
        jax.jit(lambda batch: batch["age"])(ages)
