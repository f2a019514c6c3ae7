"""Datasets that BigDL Orca's `ParquetDataset.write` wrote: what their rows are, and how they become ours.

Such a dataset is a directory `chunk=0`, `chunk=1`, … of Parquet files, and `_orca_metadata`, JSON that says of each
field whether it is an image, an array or a scalar. Images are the bytes of image files, arrays those of
`numpy.savez_compressed`. Declared dtypes and shapes were never held against values, so those of arrays are taken from
the first row here, and rows that differ from it are errors when they are read.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from petastore.codecs import CompressedNdarrayCodec
from petastore.dataset import Dataset, open_dataset
from petastore.errors import InvalidArgumentError, MetadataError, SchemaError
from petastore.inventory import Inventory
from petastore.plan.unit import ReadUnit
from petastore.schema import Unischema, UnischemaField
from petastore.schema.arrow import storage_schema
from petastore.schema.stored import check_stored_schema
from petastore.storage.files.location import open_location
from petastore.storage.files.whole_files import read_whole
from petastore.writers.layout import Layout
from petastore.writers.local import write_cells
from petastore.writers.target import Mode

__all__ = ["convert_orca", "open_orca", "orca_schema"]

_METADATA = "_orca_metadata"
_MOST_BYTES = 1 << 24
_ENUM = "__enum__"
_MEMBER = "arr.npy"
_MOST_DIMENSIONS = 32


def open_orca(
    url: str | os.PathLike[str],
    *,
    fields: Iterable[UnischemaField] = (),
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
) -> Dataset:
    """A dataset of Orca's where it is, of which nothing is changed and beside which nothing is written.

    `make_reader` and loaders take it in place of a URL. `chunk` is one more column, and ranks share row groups instead
    of chunks. Each process that opens it reads the footers of all files; `orca_schema` says how to spare them that.

    Args:
        url: The directory that holds `_orca_metadata`.
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
    """The schema of a dataset of Orca's, as its files hold it.

    `petastore.writers.generate.generate_metadata(url, orca_schema(url))` writes it beside Orca's files, with what
    their footers say: whoever opens the directory by its URL then reads it so, and opens it quickly.

    Args:
        url: The directory that holds `_orca_metadata`.
        fields: Take the place of fields of that name, which are nullable, as Spark stores all. Images are bytes unless
            one says how they are decoded: `UnischemaField("image", "uint8", (None, None, 3),
            CompressedImageCodec("jpeg"), nullable=True)`, which takes PNG files as well.
        storage_options: Keyword arguments of the fsspec filesystem.
        filesystem: A pyarrow or fsspec filesystem to use instead.

    Raises:
        InvalidArgumentError: Orca did not write it, or it has no such field.
        MetadataError: `_orca_metadata` or the first array is damaged.
        SchemaError: A field cannot be one of ours.
        StorageError: It cannot be read.
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
    """Writes a dataset of Orca's as one of ours, in row groups of a size for training; chunks are gone.

    Cells are copied as they are: images lose nothing.

    Args:
        url: As in `orca_schema`.
        target: Where the dataset is written.
        fields: As in `orca_schema`.
        mode: As in `write_dataset`.
        rows_per_row_group: As in `write_dataset`.
        row_group_size_mb: As in `write_dataset`.
        storage_options: Keyword arguments of the fsspec filesystem of `url`.
        target_options: Those of `target`.
        progress: As in `write_dataset`.

    Raises:
        InvalidArgumentError, MetadataError, SchemaError, StorageError: As `orca_schema`.
        DatasetExistsError: Something is at `target`, and the mode is `"error"`.
    """
    dataset = open_dataset(url, storage_options=storage_options)
    schema = _schema(dataset, {field.name: field for field in fields})
    layout = Layout.of(rows_per_row_group=rows_per_row_group, row_group_size_mb=row_group_size_mb, rows_per_file=None)
    location = open_location(target, storage_options=target_options)
    return write_cells(
        location, schema, _cells(dataset, schema), layout, mode=mode, writer="petastore convert_orca", progress=progress
    )


def _schema(dataset: Dataset, asked: Mapping[str, UnischemaField]) -> Unischema:
    kinds = _kinds(dataset)
    unknown = sorted(asked.keys() - kinds.keys())
    if unknown:
        raise InvalidArgumentError(f"{dataset.url} has the fields {', '.join(map(repr, kinds))}, and not {unknown}")
    first = _first_row(dataset, [name for name, kind in kinds.items() if kind == "NDARRAY"])
    return Unischema("orca", [asked.get(name) or _field(dataset, name, kind, first) for name, kind in kinds.items()])


def _kinds(dataset: Dataset) -> dict[str, str]:
    """Field name to `IMAGE`, `NDARRAY` or `SCALAR`, as Orca's JSON says."""
    data = read_whole(dataset.location, _METADATA, max_bytes=_MOST_BYTES)
    if data is None:
        raise InvalidArgumentError(f"{dataset.url} has no {_METADATA}: Orca's ParquetDataset did not write it")
    try:
        said = json.loads(data)
        kinds = {str(name): str(one["feature_type"][_ENUM]).removeprefix("FeatureType.") for name, one in said.items()}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as problem:
        raise MetadataError(f"{dataset.url}/{_METADATA} is damaged: {problem!r}") from None
    odd = [f"{name} ({kind})" for name, kind in kinds.items() if kind not in ("IMAGE", "NDARRAY", "SCALAR")]
    missing = sorted(kinds.keys() - dataset.schema.fields.keys())
    if odd or missing:
        raise MetadataError(
            f"{dataset.url}/{_METADATA} names what is not there: kinds {odd}, columns {missing} of "
            f"{', '.join(map(repr, dataset.schema.fields))}"
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
            f"{dataset.url}: nothing says what the arrays of {name!r} are, for its first row has none; give a field "
            "for it in fields="
        )
    shape, dtype = _header(cell, f"{dataset.url}, column {name!r}, row 0")
    return UnischemaField(name, dtype, (None,) * len(shape), CompressedNdarrayCodec(), nullable=True)


def _first_row(dataset: Dataset, names: list[str]) -> dict[str, Any]:
    filled = np.flatnonzero(dataset.inventory.rows)
    if not names or not len(filled):
        return {}
    found: dict[str, Any] = _row_group(dataset, int(filled[0]), names).slice(0, 1).to_pylist()[0]
    return found


def _row_group(dataset: Dataset, group: int, columns: Iterable[str]) -> pa.Table:
    return dataset.read(ReadUnit.whole(dataset.inventory, group, columns))


def _header(cell: bytes, where: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype of an archive's array; nothing of the array is unpacked."""
    try:
        with zipfile.ZipFile(io.BytesIO(cell)) as archive, archive.open(_MEMBER) as member:
            version = np.lib.format.read_magic(member)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = read(member)
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError, OSError, NotImplementedError, RuntimeError) as problem:
        raise MetadataError(f"{where}: the cell is no array that numpy.savez_compressed stored: {problem}") from None
    if dtype.hasobject or len(shape) > _MOST_DIMENSIONS:
        raise SchemaError(f"{where}: the array is of {dtype} with {len(shape)} dimensions, which no field can be")
    return tuple(shape), dtype


def _cells(dataset: Dataset, schema: Unischema) -> Iterator[pa.RecordBatch]:
    stored, names = storage_schema(schema), list(schema.fields)
    for group in range(dataset.inventory.num_row_groups):
        yield from _row_group(dataset, group, names).select(names).cast(stored).to_batches()
