"""PyTorch: a `torch.utils.data.DataLoader` whose batches are the reader's own memory.

A reader has its pool of workers already, so nothing is collated row by row and nothing crosses a process border: a
batch of columns becomes a dict of tensors that share memory with its NumPy arrays. That is `DataLoader`, to be tried
first.

For torch's own DataLoader, with its own worker processes, there are `ReaderDataset`, whose workers read row groups of
their own, and `MapDataset`, rows by number for any sampler; `BlockSampler` is the one that is kind to row groups.
"""

from __future__ import annotations

from petastore.errors import MissingExtraError

try:
    import torch as _torch  # noqa: F401
except ImportError:
    raise MissingExtraError("petastore.adapters.torch", package="torch", extra="torch") from None

from petastore.adapters.nulls import Fill
from petastore.adapters.ragged import Padded
from petastore.adapters.torch.batched import BatchedDataLoader, InMemBatchedDataLoader
from petastore.adapters.torch.block_sampler import BlockSampler
from petastore.adapters.torch.loader import DataLoader
from petastore.adapters.torch.map_dataset import MapDataset
from petastore.adapters.torch.reader_dataset import ReaderDataset
from petastore.adapters.torch.rows import decimal_friendly_collate

__all__ = [
    "BatchedDataLoader",
    "BlockSampler",
    "DataLoader",
    "Fill",
    "InMemBatchedDataLoader",
    "MapDataset",
    "Padded",
    "ReaderDataset",
    "decimal_friendly_collate",
]
