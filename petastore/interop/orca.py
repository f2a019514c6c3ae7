"""BigDL Orca datasets: read them in place, or convert them.

Orca's `ParquetDataset.write` writes such datasets. An Orca dataset has directories `chunk=0`, `chunk=1`, … of Parquet
files, and `_orca_metadata`, a JSON file that declares each field as an image, an array or a scalar. Images are stored
as bytes of image files, arrays as bytes from `numpy.savez_compressed`. Orca does not check declared dtypes and shapes
against values. petastore therefore infers dtype and shape of arrays from the first row, and raises an error for a row
that differs.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from petastore.codecs.arrays.compressed import CompressedNdarrayCodec, NpzError, member_of
from petastore.codecs.arrays.npy import NpyError, NpyHeader, header_of
from petastore.dataset import Dataset, open_dataset
from petastore.errors import InvalidArgumentError, MetadataError, SchemaError
from petastore.inventory import Inventory, ReadUnit
from petastore.schema import Unischema, UnischemaField
from petastore.schema.arrow import storage_schema
from petastore.schema.file_schemas import check_stored_schema
from petastore.storage.files.location import open_location
from petastore.storage.files.whole_files import read_whole
from petastore.writers.local import write_cells
from petastore.writers.parquet import FileLayout
from petastore.writers.target import Mode

__all__ = ["convert_orca", "open_orca", "orca_schema"]

_METADATA = "_orca_metadata"
_MOST_BYTES = 1 << 24
_ENUM = "__enum__"


def open_orca(
    url: str | os.PathLike[str],
    *,
    fields: Iterable[UnischemaField] = (),
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
) -> Dataset:
    """Open an Orca dataset in place, without writing anything.

    Pass the result to `make_reader` and loaders instead of a URL. `chunk` becomes a column. Rows, not chunks, are
    divided among ranks. Each process that opens the dataset reads the footers of all files; see `orca_schema` for how
    to avoid that.

    Args:
        url: Directory with `_orca_metadata`.
        fields: As in `orca_schema`.
        storage_options: Keyword arguments of the fsspec filesystem.
        filesystem: A pyarrow or fsspec filesystem to use instead.

    Raises:
        InvalidArgumentError, MetadataError, SchemaError, StorageError: As `orca_schema`.
    """
    dataset = open_dataset(url, storage_options=storage_options, filesystem=filesystem)
    declared = _schema(dataset, {field.name: field for field in fields})
    keys = dataset.partition_names
    check_stored_schema(declared, dataset.arrow_schema, source=dataset.url, partition_names=keys)
    return dataclasses.replace(
        dataset, schema=Unischema(declared.name, [*declared, *(dataset.schema[key] for key in keys)])
    )


def orca_schema(
    url: str | os.PathLike[str],
    *,
    fields: Iterable[UnischemaField] = (),
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
) -> Unischema:
    """Infer the schema of an Orca dataset.

    To store the schema and a manifest next to Orca's files, call `petastore.writers.generate.generate_metadata(url,
    orca_schema(url))`. `make_reader(url)` then opens the directory without reading all footers.

    Args:
        url: Directory with `_orca_metadata`.
        fields: Fields that replace inferred fields of the same name. Make them nullable, since Spark stores all columns
            as nullable. Images are read as bytes, unless a field declares an image codec: `UnischemaField("image",
            "uint8", (None, None, 3), CompressedImageCodec("jpeg"), nullable=True)`, which also reads PNG files.
        storage_options: Keyword arguments of the fsspec filesystem.
        filesystem: A pyarrow or fsspec filesystem to use instead.

    Raises:
        InvalidArgumentError: The directory is not an Orca dataset, or a field is unknown.
        MetadataError: `_orca_metadata` or the first array is damaged.
        SchemaError: A field's type is not supported.
        StorageError: The dataset cannot be read.
    """
    dataset = open_dataset(url, storage_options=storage_options, filesystem=filesystem)
    return _schema(dataset, {field.name: field for field in fields})


def convert_orca(
    url: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    fields: Iterable[UnischemaField] = (),
    mode: Mode = "error",
    rows_per_row_group: int | None = None,
    row_group_size_mb: float | None = None,
    storage_options: Mapping[str, Any] | None = None,
    target_options: Mapping[str, Any] | None = None,
    progress: Callable[[int], object] | None = None,
) -> Inventory:
    """Convert an Orca dataset to a petastore dataset.

    The new dataset does not have chunks, and its row groups have a good size for training.

    Cells are copied unchanged, so images lose no quality.

    Args:
        url: As in `orca_schema`.
        target: Directory of the new dataset.
        fields: As in `orca_schema`.
        mode: As in `write_dataset`.
        rows_per_row_group: As in `write_dataset`.
        row_group_size_mb: As in `write_dataset`.
        storage_options: Keyword arguments of the fsspec filesystem of `url`.
        target_options: Keyword arguments of the fsspec filesystem of `target`.
        progress: As in `write_dataset`.

    Raises:
        InvalidArgumentError, MetadataError, SchemaError, StorageError: As `orca_schema`.
        DatasetExistsError: `target` exists, and `mode` is `"error"`.
    """
    dataset = open_dataset(url, storage_options=storage_options)
    schema = _schema(dataset, {field.name: field for field in fields})
    layout = FileLayout.of(
        rows_per_row_group=rows_per_row_group, row_group_size_mb=row_group_size_mb, rows_per_file=None
    )
    location = open_location(target, storage_options=target_options)
    return write_cells(
        location, schema, _cells(dataset, schema), layout, mode=mode, writer="petastore convert_orca", progress=progress
    )


def _schema(dataset: Dataset, asked: Mapping[str, UnischemaField]) -> Unischema:
    kinds = _kinds(dataset)
    unknown = sorted(asked.keys() - kinds.keys())
    if unknown:
        raise InvalidArgumentError(
            f"fields must name fields of {dataset.url} ({', '.join(map(repr, kinds))}), got {unknown}"
        )
    first = _first_row(dataset, [name for name, kind in kinds.items() if kind == "NDARRAY"])
    return Unischema("orca", [asked.get(name) or _field(dataset, name, kind, first) for name, kind in kinds.items()])


def _kinds(dataset: Dataset) -> dict[str, str]:
    """Return `IMAGE`, `NDARRAY` or `SCALAR` for each field, from Orca's JSON."""
    data = read_whole(dataset.location, _METADATA, max_bytes=_MOST_BYTES)
    if data is None:
        raise InvalidArgumentError(
            f"url must be a dataset of Orca's ParquetDataset, got {dataset.url}, which has no {_METADATA}"
        )
    try:
        said = json.loads(data)
        kinds = {str(name): str(one["feature_type"][_ENUM]).removeprefix("FeatureType.") for name, one in said.items()}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as problem:
        raise MetadataError(
            f"{dataset.url}/{_METADATA} must be the JSON that Orca writes, got damaged content: {problem!r}. Write the "
            "dataset again"
        ) from None
    odd = [f"{name} ({kind})" for name, kind in kinds.items() if kind not in ("IMAGE", "NDARRAY", "SCALAR")]
    missing = sorted(kinds.keys() - dataset.schema.fields.keys())
    if odd or missing:
        raise MetadataError(
            f"{dataset.url}/{_METADATA} must have known kinds for columns of the dataset "
            f"({', '.join(map(repr, dataset.schema.fields))}), got unknown kinds {odd} and unknown columns {missing}. "
            "Write the dataset again with Orca"
        )
    return kinds


def _field(dataset: Dataset, name: str, kind: str, first: Mapping[str, Any]) -> UnischemaField:
    if kind == "SCALAR":
        return dataset.schema[name]
    if kind == "IMAGE":
        return UnischemaField(name, np.bytes_, (), None, nullable=True)
    cell = first.get(name)
    if not isinstance(cell, bytes):
        raise SchemaError(
            f"{dataset.url}: the first row must have an array in {name!r}, from which petastore takes the dtype, got "
            "none. Declare the field in fields="
        )
    header = _header(cell, f"{dataset.url}, column {name!r}, row 0")
    return UnischemaField(name, header.dtype, (None,) * len(header.shape), CompressedNdarrayCodec(), nullable=True)


def _first_row(dataset: Dataset, names: list[str]) -> dict[str, Any]:
    filled = np.flatnonzero(dataset.inventory.rows)
    if not names or not len(filled):
        return {}
    found: dict[str, Any] = _row_group(dataset, int(filled[0]), names).slice(0, 1).to_pylist()[0]
    return found


def _row_group(dataset: Dataset, group: int, columns: Iterable[str]) -> pa.Table:
    return dataset.read(ReadUnit.whole(dataset.inventory, group, columns))


def _header(cell: bytes, where: str) -> NpyHeader:
    """Return the header of the NumPy array in a cell, with its dtype and shape."""
    try:
        return header_of(np.frombuffer(member_of(np.frombuffer(cell, np.uint8), None), np.uint8))
    except (NpzError, NpyError) as problem:
        raise MetadataError(
            f"{where}: the cell must be an array from numpy.savez_compressed: {problem}. Write the dataset again"
        ) from None


def _cells(dataset: Dataset, schema: Unischema) -> Iterator[pa.RecordBatch]:
    stored, names = storage_schema(schema), list(schema.fields)
    for group in range(dataset.inventory.num_row_groups):
        yield from _row_group(dataset, group, names).select(names).cast(stored).to_batches()
