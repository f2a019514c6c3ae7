"""TensorFlow: a `tf.data.Dataset` with a full `element_spec`, fed with the columns of many batches at a time.

Python hands over runs of batches, as the reader made them, and TensorFlow's own code cuts batches or rows out of them:
a function that runs for each batch, of Python or of a graph, would cost more than the batch. Aligned columns are not
copied on the way, and all columns of a dtype cross as the one array that they lie in. Only ragged and padded columns,
which depend on what else is in the batch, are made batch by batch.
"""

from __future__ import annotations

from petastore.errors import MissingExtraError

try:
    import tensorflow as tf  # noqa: F401
except ImportError:
    raise MissingExtraError("petastore.adapters.tensorflow", package="tensorflow", extra="tf") from None

from petastore.adapters.tensorflow.dataset import make_tf_dataset
from petastore.adapters.tensorflow.dataset_fn import DatasetFunction, make_tf_dataset_fn
from petastore.adapters.tensorflow.petastorm import tensors_of_next, with_signed_integers
from petastore.adapters.tensorflow.reader_state import ReaderState
from petastore.adapters.tensorflow.received import state_after

__all__ = [
    "DatasetFunction",
    "ReaderState",
    "make_tf_dataset",
    "make_tf_dataset_fn",
    "state_after",
    "tensors_of_next",
    "with_signed_integers",
]
