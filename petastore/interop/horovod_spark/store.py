"""The store of Horovod's estimators, on today's pyarrow: where they keep data, checkpoints and logs."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa

from petastore.dataset import open_dataset
from petastore.errors import MissingExtraError
from petastore.inventory import Inventory
from petastore.schema import Unischema
from petastore.schema.arrow import storage_type

try:
    from horovod.spark.common.store import FilesystemStore
except ImportError as problem:
    raise MissingExtraError("PetastoreStore", package="horovod", extra="spark") from problem

__all__ = ["PetastoreStore"]

_REMEMBERED = "_cached_metadata.pkl"


class PetastoreStore(FilesystemStore):  # type: ignore[misc]
    """A store that reads what there is to know of a dataset with petastore, from any file system of fsspec.

    `fit(df)` writes plain Parquet below the prefix; `fit_on_parquet()` trains on datasets that are there, also those
    of petastore with codecs, in place, and writes nothing beside them. Rows are counted anew for each training: Horovod
    remembers them in a pickle, which would be wrong once the data is written again. It lies below the prefix here, and
    is never loaded, nor is one that lies beside the data.

    Args:
        prefix_path: A directory, or its URL.
        *args: As Horovod's `FilesystemStore`.
        **kwargs: As Horovod's `FilesystemStore`: `train_path` and `val_path` are the datasets of `fit_on_parquet()`;
            `storage_options`, `runs_path`, `save_runs`, `checkpoint_filename`.
    """

    def __init__(self, prefix_path: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(prefix_path, *args, **kwargs)

    @classmethod
    def create(cls, prefix_path: str, *args: Any, **kwargs: Any) -> Self:
        """A store of this kind, whatever the prefix."""
        return cls(prefix_path, *args, **kwargs)

    def get_parquet_dataset(self, path: str) -> _Described:
        """What Horovod asks of a dataset: columns as they are decoded, rows, and bytes.

        Raises:
            StorageError: There is none, or it cannot be read.
        """
        dataset = open_dataset(path, storage_options=self.storage_options or None)
        return _Described(_DecodedColumns(dataset.schema), _pieces(dataset.inventory))

    def get_data_metadata_path(self, path: str) -> str:
        """Where Horovod writes what it remembers of data: below the prefix, for the data may be read-only."""
        folder = self.get_localized_path(self.prefix_path)
        self.fs.makedirs(folder, exist_ok=True)
        return f"{folder}/{hashlib.sha256(path.encode()).hexdigest()[:16]}{_REMEMBERED}"

    def exists(self, path: str) -> bool:
        """Whether something is there, but for what Horovod remembers of data."""
        return not path.endswith(_REMEMBERED) and bool(super().exists(path))


@dataclasses.dataclass(frozen=True)
class _RowGroup:
    total_byte_size: int


@dataclasses.dataclass(frozen=True)
class _Piece:
    """A file, and its own metadata."""

    num_rows: int
    bytes_of_groups: Sequence[int]

    def get_metadata(self) -> Self:
        return self

    @property
    def num_row_groups(self) -> int:
        return len(self.bytes_of_groups)

    def row_group(self, number: int) -> _RowGroup:
        return _RowGroup(self.bytes_of_groups[number])


@dataclasses.dataclass(frozen=True)
class _DecodedColumns:
    schema: Unischema

    def to_arrow_schema(self) -> pa.Schema:
        """Tensors are lists, which Horovod takes for vectors, whatever their codec."""
        return pa.schema(
            [
                (field.name, pa.list_(pa.from_numpy_dtype(field.dtype)) if field.shape else storage_type(field))
                for field in self.schema
            ]
        )


@dataclasses.dataclass(frozen=True)
class _Described:
    schema: _DecodedColumns
    pieces: Sequence[_Piece]


def _pieces(inventory: Inventory) -> list[_Piece]:
    borders = np.searchsorted(inventory.file, np.arange(len(inventory.files) + 1)).tolist()
    return [
        _Piece(int(inventory.rows[begin:end].sum()), inventory.decoded_bytes[begin:end].tolist())
        for begin, end in itertools.pairwise(borders)
    ]
