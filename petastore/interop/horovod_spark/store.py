"""Store for Horovod's Spark estimators: paths of data, checkpoints and logs.

It works with current releases of pyarrow.
"""

from __future__ import annotations

import hashlib
from types import SimpleNamespace
from typing import Any, Self

import pyarrow as pa

from petastore.dataset import open_dataset
from petastore.errors import MissingExtraError
from petastore.schema import Unischema
from petastore.schema.arrow import storage_type

try:
    from horovod.spark.common.store import FilesystemStore
except ImportError as problem:
    raise MissingExtraError("PetastoreStore", package="horovod", extra="spark") from problem

__all__ = ["PetastoreStore"]

_REMEMBERED = "_cached_metadata.pkl"


class PetastoreStore(FilesystemStore):  # type: ignore[misc]
    """A Horovod Spark store that reads a dataset's metadata with petastore.

    It supports any fsspec filesystem. `fit(df)` writes plain Parquet under the prefix. `fit_on_parquet()` trains on
    existing datasets, including petastore datasets with codecs, and writes nothing next to them. Rows are counted for
    each training run. The pickle in which Horovod stores row counts would be wrong after the data has changed; it is
    written under the prefix, but never loaded.

    Args:
        prefix_path: Local path or URL of the store's directory.
        *args: As in Horovod's `FilesystemStore`.
        **kwargs: As in Horovod's `FilesystemStore`: `train_path` and `val_path` are the datasets of `fit_on_parquet()`;
            `storage_options`, `runs_path`, `save_runs`, `checkpoint_filename`.
    """

    def __init__(self, prefix_path: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(prefix_path, *args, **kwargs)

    @classmethod
    def create(cls, prefix_path: str, *args: Any, **kwargs: Any) -> Self:
        """Return a `PetastoreStore` for any URL prefix.

        Horovod's method would select a store class by the scheme of the URL.
        """
        return cls(prefix_path, *args, **kwargs)

    def get_parquet_dataset(self, path: str) -> SimpleNamespace:
        """Return a dataset with the interface that Horovod expects.

        It has the decoded columns, and the numbers of rows and bytes.

        Raises:
            StorageError: The dataset does not exist or cannot be read.
        """
        dataset = open_dataset(path, storage_options=self.storage_options or None)
        columns, inventory = _decoded_columns(dataset.schema), dataset.inventory
        # Horovod adds up the rows of all pieces and the bytes of their row groups, so one of each is enough.
        row_group = SimpleNamespace(total_byte_size=int(inventory.decoded_bytes.sum()))
        metadata = SimpleNamespace(num_rows=inventory.num_rows, num_row_groups=1, row_group=lambda _: row_group)
        piece = SimpleNamespace(get_metadata=lambda: metadata)
        return SimpleNamespace(schema=SimpleNamespace(to_arrow_schema=lambda: columns), pieces=[piece])

    def get_data_metadata_path(self, path: str) -> str:
        """Return the path of Horovod's metadata.

        It is under the store's prefix, because the data directory may be read-only.
        """
        folder = self.get_localized_path(self.prefix_path)
        self.fs.makedirs(folder, exist_ok=True)
        return f"{folder}/{hashlib.sha256(path.encode()).hexdigest()[:16]}{_REMEMBERED}"

    def exists(self, path: str) -> bool:
        """Return whether a path exists.

        Return False for Horovod's metadata, so that Horovod never loads it.
        """
        return not path.endswith(_REMEMBERED) and bool(super().exists(path))


def _decoded_columns(schema: Unischema) -> pa.Schema:
    """Return the Arrow schema for Horovod, in which tensors are lists."""
    return pa.schema(
        [
            (field.name, pa.list_(pa.from_numpy_dtype(field.dtype)) if field.shape else storage_type(field))
            for field in schema
        ]
    )
