"""Keras 3 on any of its backends: a `keras.utils.PyDataset` of a reader, and a callback that saves where training is.

On TensorFlow's backend `petastore.adapters.tensorflow.make_tf_dataset` is faster; `ReaderCheckpoint` goes with both.
"""

from __future__ import annotations

from petastore.errors import MissingExtraError

try:
    import keras  # noqa: F401
except ImportError:
    raise MissingExtraError("petastore.adapters.keras", package="keras", extra="keras") from None

from petastore.adapters.keras.distribution import refuse_other_shards
from petastore.adapters.keras.py_dataset import PyDataset
from petastore.adapters.keras.reader_checkpoint import ReaderCheckpoint

__all__ = ["PyDataset", "ReaderCheckpoint", "refuse_other_shards"]
