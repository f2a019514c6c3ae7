"""TensorFlow: a `tf.data.Dataset` over a reader, with checkpoints of its position.

The dataset has a complete `element_spec`. Python passes many batches in one call to TensorFlow, and TensorFlow's native
code slices the single batches or rows. This avoids a Python call per batch. Columns in aligned memory are zero-copy,
and columns of one dtype that share a buffer are passed as one array. Only ragged and padded columns need a conversion
for each batch.
"""

from __future__ import annotations

from petastore.errors import MissingExtraError

try:
    import tensorflow as tf  # noqa: F401
except ImportError:
    raise MissingExtraError("petastore.adapters.tensorflow", package="tensorflow", extra="tf") from None

from petastore.adapters.tensorflow.petastorm_functions import tensors_of_next, with_signed_integers
from petastore.adapters.tensorflow.tf_dataset import (
    DatasetFunction,
    ReaderState,
    make_tf_dataset,
    make_tf_dataset_fn,
    state_after,
)

__all__ = [
    "DatasetFunction",
    "ReaderState",
    "make_tf_dataset",
    "make_tf_dataset_fn",
    "state_after",
    "tensors_of_next",
    "with_signed_integers",
]
