"""Tests of iteration over a tf.data dataset: Python loops equal `tf.function` loops, and both can share an iterator."""

from __future__ import annotations

from typing import Any

import pytest

import petastore

pytestmark = [pytest.mark.tf, pytest.mark.slow]

ROWS = 50


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("quick") / "data")
    fields = [petastore.UnischemaField(name, "int32") for name in ("z", "b", "a")]
    rows = [{"z": i, "b": 100 + i, "a": 200 + i} for i in range(ROWS)]
    petastore.write_dataset(url, petastore.Unischema("numbers", fields), rows, rows_per_row_group=20)
    return url


@pytest.fixture
def dataset_of() -> Any:
    from petastore.adapters.tensorflow import make_tf_dataset

    return lambda reader: make_tf_dataset(reader, batch_size=8)


def first_of(batch: Any) -> int:
    """Return the first value of column z, after checking that the other columns belong to the same row."""
    z = int(batch["z"][0])
    assert [int(batch[name][0]) for name in ("b", "a")] == [z + 100, z + 200]
    return z


def test_tf_dataset_batches_have_columns_in_the_order_of_the_element_spec(dataset_of: Any, url: str) -> None:
    with petastore.make_reader(url, shuffle_row_groups=False) as reader:
        dataset = dataset_of(reader)
        assert list(dataset.element_spec) == ["z", "b", "a"]
        batches = list(dataset)
    assert all(list(batch) == ["z", "b", "a"] for batch in batches)
    assert [first_of(batch) for batch in batches] == list(range(0, ROWS, 8))
    assert [len(batch["z"]) for batch in batches] == [8, 8, 8, 8, 8, 8, 2]


def test_tf_dataset_iterator_continues_between_python_and_tf_function(dataset_of: Any, url: str) -> None:
    import tensorflow as tf

    step = tf.function(lambda batches: next(batches)["z"][0])
    with petastore.make_reader(url, shuffle_row_groups=False) as reader:
        batches = iter(dataset_of(reader))
        assert isinstance(batches, tf.data.Iterator)
        assert [first_of(next(batches)), int(step(batches)), first_of(batches.get_next()), int(step(batches))] == [
            0, 8, 16, 24,
        ]  # fmt: skip
        assert [first_of(batch) for batch in batches] == [32, 40, 48]
        with pytest.raises(StopIteration):
            next(batches)
        with pytest.raises(tf.errors.OutOfRangeError):
            step(batches)


def test_tf_function_loop_reads_every_row(dataset_of: Any, url: str) -> None:
    import tensorflow as tf

    with petastore.make_reader(url, shuffle_rows=True, seed=3) as reader:
        dataset = dataset_of(reader)

        def total() -> Any:
            rows = tf.constant(0)
            for batch in dataset:
                rows += tf.reduce_sum(batch["a"] - batch["z"])
            return rows

        assert int(tf.function(total)()) == 200 * ROWS
        assert int(dataset.reduce(tf.constant(0), lambda rows, batch: rows + tf.size(batch["z"]))) == ROWS


def test_dataset_iterates_in_order_without_synchronous_execution(dataset_of: Any, url: str) -> None:
    import tensorflow as tf

    with petastore.make_reader(url, shuffle_row_groups=False) as reader:
        tf.config.experimental.set_synchronous_execution(False)
        try:
            assert [first_of(batch) for batch in dataset_of(reader)] == list(range(0, ROWS, 8))
        finally:
            tf.config.experimental.set_synchronous_execution(True)
