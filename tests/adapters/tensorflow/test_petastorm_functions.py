"""Tests of functions for Petastorm and TensorFlow 1 programs: named tuples, signed integers and `session.run`."""

from __future__ import annotations

import pytest

from petastore.errors import InvalidArgumentError

pytestmark = [pytest.mark.tf, pytest.mark.slow]


def test_dicts_become_named_tuples_with_items_by_column_name() -> None:
    import tensorflow as tf

    from petastore.adapters.tensorflow.petastorm_functions import as_named_tuples

    dataset = tf.data.Dataset.from_tensor_slices({"id": [1, 2], "a-b": [3, 4]})
    rows = list(as_named_tuples(dataset, "row"))
    assert [(int(row.id), int(row["a-b"])) for row in rows] == [(1, 3), (2, 4)]
    assert type(rows[0]).__name__ == "row"


def test_unsigned_integers_become_signed_in_nested_elements() -> None:
    import tensorflow as tf

    from petastore.adapters.tensorflow.petastorm_functions import with_signed_integers

    element = {"a": tf.constant(65_535, tf.uint16), "b": (tf.constant(2**32 - 1, tf.uint32), tf.constant(1, tf.uint8))}
    (found,) = with_signed_integers(tf.data.Dataset.from_tensors(element))
    assert (found["a"].dtype, int(found["a"])) == (tf.int32, 65_535)
    assert (found["b"][0].dtype, int(found["b"][0])) == (tf.int64, 2**32 - 1)
    assert found["b"][1].dtype == tf.uint8
    plain = tf.data.Dataset.range(3)
    assert with_signed_integers(plain) is plain


def test_session_run_returns_the_next_element() -> None:
    import tensorflow as tf

    from petastore.adapters.tensorflow.petastorm_functions import tensors_of_next

    with tf.Graph().as_default():
        number = tensors_of_next(tf.data.Dataset.range(2))
        with tf.compat.v1.Session() as session:
            assert [int(session.run(number)) for _ in range(2)] == [0, 1]
            with pytest.raises(tf.errors.OutOfRangeError):
                session.run(number)
    with pytest.raises(
        InvalidArgumentError, match=r"need a graph and a session, but TensorFlow runs eagerly\. Iterate over"
    ):
        tensors_of_next(tf.data.Dataset.range(2))
