"""PyTorch adapter: a `torch.utils.data.DataLoader` with zero-copy batches.

Use `DataLoader` first: a batch is a dict of tensors that share memory with the NumPy columns of a reader. No row is
collated separately, and no data is sent between processes.

For torch's own DataLoader with worker processes, use `ReaderDataset`, in which each worker reads its own row groups, or
`MapDataset`, which returns rows by number for any sampler. `BlockSampler` is a sampler for `MapDataset` that reads each
row group only once.
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
from petastore.adapters.torch.loader import DataLoader
from petastore.adapters.torch.map_dataset import BlockSampler, MapDataset
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
