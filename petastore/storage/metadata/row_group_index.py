"""Stored row-group indexes: one Arrow file each, `_petastore/indexes/<name>.arrow`; nothing in them is trusted.

A file has one record for each value: the value as JSON (`petastore.expressions.literal.literal_json`, or null where all
values are one) and the numbers of the row groups that hold it. Its metadata names the index, its fields, and the
version of each data file that it was built from, and holds a digest of the file (`petastore.storage.metadata.seal`).
With other data files an index is stale, and refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
from pyarrow import fs, ipc

from petastore.arrow.memory import numbers_of
from petastore.errors import DatasetChangedError, InvalidArgumentError, MetadataError, PetastoreError
from petastore.expressions.literal import as_literal, literal_json
from petastore.indexers import RowGroupIndex, Slices
from petastore.inventory import Inventory
from petastore.storage.files.location import Location
from petastore.storage.files.whole_files import read_whole, replace_whole
from petastore.storage.metadata.seal import SEAL_KEY, UNSEALED, is_sealed, sealed
from petastore.storage.requests.failures import answered

__all__ = ["INDEXES", "INDEX_VERSION", "MAX_BYTES", "read_index", "stored_index_names", "write_indexes"]

INDEXES = "_petastore/indexes"
"""The directory of the indexes, relative to the dataset's root."""

INDEX_VERSION = 1
"""The newest version that this release reads, and the one that it writes."""

_FORMAT = "petastore.row_group_index"
_SUFFIX = ".arrow"
MAX_BYTES = 256 * 1024 * 1024
_MAX_NAME = 200
_SCHEMA = pa.schema(
    [
        pa.field("value", pa.large_string(), nullable=False),
        pa.field("row_groups", pa.list_(pa.field("element", pa.int32(), nullable=False)), nullable=False),
    ]
)
_TIME = re.compile(r"(?P<kind>datetime64|timedelta64)\[(?P<unit>D|s|ms|us|ns|ps|fs|as)\]")
_MOST_DIGITS = 1000
_AGAIN = "build it again with petastore.indexing.build_rowgroup_index"
_UNREADABLE = (LookupError, ValueError, TypeError, ArithmeticError)  # what JSON of another form ends in


def write_indexes(location: Location, inventory: Inventory, indexes: Sequence[RowGroupIndex]) -> None:
    """Put each index in place of the one of its name, in one step; where one cannot be stored, none is.

    Args:
        location: The dataset's directory.
        inventory: The version of the dataset that they were built from.
        indexes: The indexes.

    Raises:
        InvalidArgumentError: A name is too long, or a value cannot be stored.
        MetadataError: One is larger than what is read back.
        StorageError: The storage refused; the old index of that name, and those after it, still stand.
    """
    encoded = {_path(index.index_name): _encoded(inventory, index) for index in indexes}
    for path, data in encoded.items():
        replace_whole(location, path, data)


def _encoded(inventory: Inventory, index: RowGroupIndex) -> bytes:
    offsets = np.concatenate([[0], np.cumsum([len(groups) for groups in index.row_groups], dtype=np.int64)])
    _check_size(index, 4 * int(offsets[-1]))  # before memory is taken for them
    numbers = np.fromiter((group for groups in index.row_groups for group in sorted(groups)), np.int32)
    texts = ["null"] if index.values is None else [_text_of(value, index.index_name) for value in index.values]
    columns = [
        pa.array(texts, pa.large_string()),
        pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(numbers), type=_SCHEMA.types[1]),
    ]
    metadata = {
        "petastore.format": _FORMAT,
        "petastore.version": str(INDEX_VERSION),
        "petastore.needs": "petastore 0.1.0",
        "petastore.index": json.dumps({"name": index.index_name, "columns": list(index.column_names)}),
        "petastore.files": json.dumps(_versions(inventory)),
        SEAL_KEY: UNSEALED,
    }
    sink = pa.BufferOutputStream()
    schema = _SCHEMA.with_metadata(metadata)
    with ipc.new_file(sink, schema) as writer:
        writer.write_table(pa.table(columns, schema=schema))
    data: bytes = sealed(sink.getvalue().to_pybytes(), f"the index {index.index_name!r}")
    _check_size(index, len(data))
    return data


def _check_size(index: RowGroupIndex, size: int) -> None:
    if size > MAX_BYTES:
        raise MetadataError(
            f"the index {index.index_name!r} would have {size:,} bytes, and at most {MAX_BYTES:,} are read back; "
            "index a field with fewer distinct values, or filter by this one: statistics find its row groups"
        )


def stored_index_names(location: Location) -> list[str]:
    """Names of the stored indexes, sorted.

    Raises:
        StorageError: The storage refused.
    """
    selector = fs.FileSelector(location.join(INDEXES), allow_not_found=True)
    infos = answered(location, lambda: location.filesystem.get_file_info(selector), f"list the directory {INDEXES}")
    names = [info.base_name for info in infos if info.is_file]
    return sorted(unquote(name.removesuffix(_SUFFIX)) for name in names if name.endswith(_SUFFIX))


def read_index(location: Location, inventory: Inventory, name: str) -> RowGroupIndex | None:
    """A stored index; None where there is none of that name.

    Args:
        location: The dataset's directory.
        inventory: The version of the dataset that is read.
        name: Name of the index.

    Raises:
        DatasetChangedError: It was built from other data files.
        MetadataError: It is damaged, too large, or of a newer version than this release reads.
        StorageError: The storage refused.
    """
    relative = _path(name)
    data = read_whole(location, relative, max_bytes=MAX_BYTES)
    if data is None:
        return None
    source = f"{location.url}/{relative}"
    is_sealed(data, source, again=_AGAIN)
    try:
        reader = ipc.open_file(pa.BufferReader(data))
        metadata = _checked_metadata(reader.schema, source)
        _check_version(metadata["petastore.files"], inventory, name, source)
        table = reader.read_all().combine_chunks()
        table.validate(full=True)
        return _index(table, metadata["petastore.index"], name, inventory.num_row_groups)
    except (pa.ArrowException, OSError, MemoryError, RecursionError, *_UNREADABLE) as problem:
        if isinstance(problem, PetastoreError):
            raise
        raise MetadataError(f"{source} is damaged: {problem}; {_AGAIN}") from problem


def _path(name: str) -> str:
    quoted = quote(name, safe="")
    if not name or len(quoted) > _MAX_NAME:
        raise InvalidArgumentError(
            f"the name {name!r:.80} of an index is empty or longer than {_MAX_NAME} characters, escaped"
        )
    return f"{INDEXES}/{quoted}{_SUFFIX}"


def _text_of(value: Any, name: str) -> str:
    if type(value) is int:
        return str(value)
    try:
        literal = literal_json(as_literal(value))
    except InvalidArgumentError:
        literal = None
    if literal is None or (isinstance(literal, dict) and "nan" in literal.values()):
        raise InvalidArgumentError(
            f"the index {name!r} has the value {value!r:.80}, a {type(value).__name__}; numbers, text, bytes, "
            "decimals, dates and times can be stored"
        )
    return json.dumps(literal)


def _versions(inventory: Inventory) -> list[list[Any]]:
    counts = np.bincount(inventory.file, minlength=len(inventory.files)).tolist()
    return [[file.path, file.size, file.digest, count] for file, count in zip(inventory.files, counts, strict=True)]


def _check_version(stored: str, inventory: Inventory, name: str, source: str) -> None:
    before = {path: version for path, *version in json.loads(stored)}
    now = {path: version for path, *version in _versions(inventory)}
    if before == now:
        return
    changed = next(path for path in sorted(before.keys() | now.keys()) if before.get(path) != now.get(path))
    what = "was added" if changed not in before else "is gone" if changed not in now else "was rewritten"
    raise DatasetChangedError(
        f"{source}: the row-group index {name!r} is stale: since it was built, {changed} {what}; {_AGAIN}"
    )


def _checked_metadata(schema: pa.Schema, source: str) -> Mapping[str, str]:
    metadata = {key.decode(): value.decode() for key, value in (schema.metadata or {}).items()}
    text = metadata.get("petastore.version", "")
    if metadata.get("petastore.format") != _FORMAT or not re.fullmatch("[1-9][0-9]{0,8}", text):
        raise MetadataError(f"{source} does not say that its format is {_FORMAT!r}, and which version of it")
    if int(text) > INDEX_VERSION:
        needed = metadata.get("petastore.needs", "a newer release of petastore")
        raise MetadataError(
            f"{source} has version {text}, and this release reads up to {INDEX_VERSION}; install {needed}"
        )
    if schema.remove_metadata() != _SCHEMA:
        raise MetadataError(f"{source} needs the columns {_SCHEMA}, but has {schema.remove_metadata()}")
    return metadata


def _index(table: pa.Table, about: str, name: str, num_row_groups: int) -> RowGroupIndex:
    described = json.loads(about)
    columns = tuple(str(column) for column in described["columns"])
    if described["name"] != name:
        raise ValueError(f"it is the index {described['name']!r:.80}")
    texts = table.column("value").to_pylist()
    groups = _row_groups(table.column("row_groups"), num_row_groups)
    if texts == ["null"]:
        return RowGroupIndex(name, columns, None, groups)
    # Parsed in one go: a call for each of a million values would take seconds.
    values = json.loads(f"[{','.join(texts)}]")
    if len(values) != len(texts):
        raise ValueError("a text holds more or less than one value")
    return RowGroupIndex(name, columns, [_value(value) for value in values], groups)


def _row_groups(column: pa.ChunkedArray, num_row_groups: int) -> Sequence[Sequence[int]]:
    if not len(column):
        return []
    lists = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
    values = lists.flatten()
    if lists.null_count or values.null_count:
        raise ValueError("it has nulls")
    numbers = numbers_of(values)
    if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < num_row_groups:
        raise ValueError("it names row groups that there are not")
    offsets = numbers_of(lists.offsets)
    return Slices(numbers, offsets - offsets[0])


def _value(written: Any) -> Any:
    """The literal that `literal_json` wrote."""
    if isinstance(written, (bool, int, str)):
        return written
    if not isinstance(written, dict) or len(written) != 1:
        raise ValueError(f"{written!r:.80} is no value")
    ((kind, text),) = written.items()
    if kind == "float":
        return float(text)
    if kind == "bytes":
        return bytes.fromhex(text)
    if kind == "decimal":
        return Decimal(text[:_MOST_DIGITS])
    time = _TIME.fullmatch(kind)
    if time is None:
        raise ValueError(f"{written!r:.80} is no value")
    unit: Any = time["unit"]
    return np.datetime64(text, unit) if time["kind"] == "datetime64" else np.timedelta64(text, unit)
