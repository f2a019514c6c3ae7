"""Row-group indexes: read and write `_petastore/indexes/<name>.arrow`.

If an index does not exist there, an index of this name that Petastorm pickled is read.

A file has one record for each value: the value as JSON (`petastore.expressions.literal.literal_json`) and the numbers
of the row groups that contain it. An index of `FieldNotNullIndexer` has a single record, whose value is null: the row
groups with any value that is not missing. The metadata of the file has the name of the index, its fields, and the
version of each indexed data file. It also has a digest of the file (`petastore.storage.files.whole_files`). If the data
files have changed, reading the index raises an error.

Petastorm's indexes do not contain the versions of the data files, only the number of row groups of each file. If these
numbers are missing or differ from the dataset, using the index raises an error. If a file was rewritten with the same
number of row groups, this is not detected; rebuild the index after such a change.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
from pyarrow import fs

from petastore.arrow import numbers_of, only_chunk
from petastore.errors import DatasetChangedError, InvalidArgumentError, MetadataError
from petastore.expressions.literal import as_literal, literal_json
from petastore.indexers import RowGroupIndex, Slices
from petastore.inventory import Inventory
from petastore.storage.files.location import Location
from petastore.storage.files.whole_files import opened_table, read_whole, replace_whole, sealed_table
from petastore.storage.footers.footers import footer_if_there
from petastore.storage.metadata.manifest import COMMON_METADATA
from petastore.storage.metadata.petastorm_index import PETASTORM_INDEX_KEY, PetastormIndex, petastorm_indexes
from petastore.storage.requests.failures import answered

__all__ = [
    "INDEXES",
    "check_petastorm_counts",
    "find_indexes",
    "index_names",
    "petastorm_counts",
    "read_index",
    "read_petastorm_indexes",
    "stored_index_names",
    "write_indexes",
]


INDEXES = "_petastore/indexes"
"""Directory of the indexes, relative to the dataset's root."""

INDEX_VERSION = 1
"""Version that this release writes, and the newest that it reads."""

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
_AGAIN = "build the index again with petastore.indexing.build_rowgroup_index"


def write_indexes(location: Location, inventory: Inventory, indexes: Sequence[RowGroupIndex]) -> None:
    """Write row-group indexes, each atomically; if one cannot be encoded, write none.

    Args:
        location: Location of the dataset.
        inventory: Inventory of the dataset version from which the indexes were built.
        indexes: Indexes to write.

    Raises:
        InvalidArgumentError: A name is too long, or a value cannot be stored.
        MetadataError: An index is larger than readers accept.
        StorageError: A storage operation failed; the index of the failed write and all later ones are unchanged.
    """
    encoded = {_path(index.index_name): _encoded(inventory, index) for index in indexes}
    for path, data in encoded.items():
        replace_whole(location, path, data)


def _encoded(inventory: Inventory, index: RowGroupIndex) -> bytes:
    offsets = np.concatenate([[0], np.cumsum([len(groups) for groups in index.row_groups], dtype=np.int64)])
    _check_size(index, 4 * int(offsets[-1]))  # checked before memory is allocated for the numbers
    numbers = np.fromiter((group for groups in index.row_groups for group in sorted(groups)), np.int32)
    texts = ["null"] if index.values is None else [_text_of(value, index.index_name) for value in index.values]
    columns = [
        pa.array(texts, pa.large_string()),
        pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(numbers), type=_SCHEMA.types[1]),
    ]
    metadata = {
        "petastore.index": json.dumps({"name": index.index_name, "columns": list(index.column_names)}),
        "petastore.files": json.dumps(_versions(inventory)),
    }
    data = sealed_table(
        pa.table(columns, schema=_SCHEMA), _FORMAT, INDEX_VERSION, metadata, f"the index {index.index_name!r}"
    )
    _check_size(index, len(data))
    return data


def _check_size(index: RowGroupIndex, size: int) -> None:
    if size > MAX_BYTES:
        raise MetadataError(
            f"an index must have at most {MAX_BYTES:,} bytes, got {size:,} for {index.index_name!r}. Index a field "
            "with fewer distinct values, or use filters=, which skips row groups by statistics"
        )


def stored_index_names(location: Location) -> list[str]:
    """Return the sorted names of indexes that petastore stored, without Petastorm's.

    Raises:
        StorageError: A storage operation failed.
    """
    selector = fs.FileSelector(location.join(INDEXES), allow_not_found=True)
    infos = answered(location, lambda: location.filesystem.get_file_info(selector), f"list the directory {INDEXES}")
    names = [info.base_name for info in infos if info.is_file]
    return sorted(unquote(name.removesuffix(_SUFFIX)) for name in names if name.endswith(_SUFFIX))


def read_index(location: Location, inventory: Inventory, name: str) -> RowGroupIndex | None:
    """Read an index that petastore stored; return None if it is missing.

    Args:
        location: Location of the dataset.
        inventory: Inventory of the dataset version.
        name: Name of the index.

    Raises:
        DatasetChangedError: The index was built from other data files.
        MetadataError: The index is damaged, too large, or newer than this release.
        StorageError: A storage operation failed.
    """
    relative = _path(name)
    data = read_whole(location, relative, max_bytes=MAX_BYTES)
    if data is None:
        return None
    source = f"{location.url}/{relative}"
    with opened_table(data, source, _FORMAT, INDEX_VERSION, again=_AGAIN) as (_, reader, metadata):
        if reader.schema.remove_metadata() != _SCHEMA:
            raise MetadataError(
                f"{source} must have the columns {_SCHEMA}, got {reader.schema.remove_metadata()}; {_AGAIN}"
            )
        _check_version(metadata["petastore.files"], inventory, name, source)
        table = reader.read_all().combine_chunks()
        table.validate(full=True)
        return _index(table, metadata["petastore.index"], name, inventory.num_row_groups)


def _path(name: str) -> str:
    quoted = quote(name, safe="")
    if not name or len(quoted) > _MAX_NAME:
        raise InvalidArgumentError(
            f"index_name must have 1 to {_MAX_NAME} characters after URL encoding, got {name!r:.80}"
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
            f"values of the index {name!r} must be numbers, text, bytes, decimals, dates or times, got "
            f"{value!r:.80}, a {type(value).__name__}"
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


def _index(table: pa.Table, about: str, name: str, num_row_groups: int) -> RowGroupIndex:
    described = json.loads(about)
    columns = tuple(str(column) for column in described["columns"])
    if described["name"] != name:
        raise ValueError(f"the file must contain the index {name!r:.80}, got {described['name']!r:.80}")
    texts = table.column("value").to_pylist()
    groups = _row_groups(table.column("row_groups"), num_row_groups)
    if texts == ["null"]:
        return RowGroupIndex(name, columns, None, groups)
    # Parsed by one call: a call for each of a million values would take seconds.
    values = json.loads(f"[{','.join(texts)}]")
    if len(values) != len(texts):
        raise ValueError(f"each text must be one JSON value, got {len(values):,} values in {len(texts):,} texts")
    return RowGroupIndex(name, columns, [_value(value) for value in values], groups)


def _row_groups(column: pa.ChunkedArray, num_row_groups: int) -> Sequence[Sequence[int]]:
    if not len(column):
        return []
    lists = only_chunk(column)
    values = lists.flatten()
    if lists.null_count or values.null_count:
        raise ValueError("the row-group numbers must not have nulls")
    numbers = numbers_of(values)
    if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < num_row_groups:
        raise ValueError(
            f"row-group numbers must be from 0 to {num_row_groups - 1:,}, got {int(numbers.min()):,} to "
            f"{int(numbers.max()):,}"
        )
    offsets = numbers_of(lists.offsets)
    return Slices(numbers, offsets - offsets[0])


def _value(written: Any) -> Any:
    """Return the Python literal of a JSON value from `literal_json`.

    Raises:
        ValueError: The JSON value is not that of a literal.
    """
    if isinstance(written, (bool, int, str)):
        return written
    if not isinstance(written, dict) or len(written) != 1:
        raise ValueError(f"an indexed value must be a literal or a dict of its kind and text, got {written!r:.80}")
    ((kind, text),) = written.items()
    if kind == "float":
        return float(text)
    if kind == "bytes":
        return bytes.fromhex(text)
    if kind == "decimal":
        return Decimal(text[:_MOST_DIGITS])
    time = _TIME.fullmatch(kind)
    if time is None:
        raise ValueError(f"the kind of an indexed value must be a known one, got {written!r:.80}")
    unit: Any = time["unit"]
    return np.datetime64(text, unit) if time["kind"] == "datetime64" else np.timedelta64(text, unit)


def index_names(location: Location, inventory: Inventory) -> list[str]:
    """Return the sorted names of a dataset's indexes, petastore's and Petastorm's.

    If Petastorm's indexes are damaged, their names are omitted.

    Raises:
        StorageError: A storage operation failed.
    """
    try:
        of_petastorm = list(read_petastorm_indexes(location, inventory))
    except MetadataError:
        of_petastorm = []  # reading one of these indexes by name raises the error
    return sorted({*stored_index_names(location), *of_petastorm})


def find_indexes(
    location: Location, inventory: Inventory, names: Iterable[str] | None = None
) -> dict[str, RowGroupIndex]:
    """Return row-group indexes of a dataset, as a dict from name to index.

    An index that petastore stored takes precedence over an index of this name that Petastorm pickled.

    Args:
        location: Location of the dataset.
        inventory: Inventory of the dataset version.
        names: Names of the indexes to return; None means all.

    Raises:
        InvalidArgumentError: A name is not that of an index, or `location` names single files.
        DatasetChangedError: An index is stale.
        MetadataError: An index is damaged, or newer than this release.
        StorageError: A storage operation failed.
    """
    if location.paths is not None:
        raise InvalidArgumentError(
            f"rowgroup_selector must be used with a whole dataset, got single files of {location.url}. Read the "
            "directory, or filter without rowgroup_selector"
        )
    own = stored_index_names(location)
    wanted = None if names is None else list(dict.fromkeys(names))
    of_petastorm = {} if wanted is not None and set(wanted) <= set(own) else read_petastorm_indexes(location, inventory)
    known = sorted({*own, *of_petastorm})
    for name in wanted or ():
        if name not in known:
            has = f"has {', '.join(map(repr, known))}" if known else "has none"
            raise InvalidArgumentError(
                f"rowgroup_selector must name an index of {location.url}, which {has}, got {name!r}. Build the index "
                "with petastore.indexing.build_rowgroup_index"
            )
    indexes: dict[str, RowGroupIndex] = {}
    for name in known if wanted is None else wanted:
        index = read_index(location, inventory, name) if name in own else None
        if index is None:
            if name not in of_petastorm:
                raise InvalidArgumentError(
                    f"another program deleted the row-group index {name!r} of {location.url} during this call. Build "
                    "the index again with petastore.indexing.build_rowgroup_index"
                )
            check_petastorm_counts(location, inventory)
            index = of_petastorm[name]
        indexes[name] = index
    return indexes


_COUNTS_KEY = b"dataset-toolkit.num_row_groups_per_file.v1"
_SUMMARY = "_metadata"
_BUILD_AGAIN = "build the indexes again with petastore.indexing.build_rowgroup_index"


def read_petastorm_indexes(location: Location, inventory: Inventory) -> dict[str, RowGroupIndex]:
    """Return the indexes that Petastorm pickled, as a dict by name.

    Petastorm stored its indexes in `_common_metadata`; the dict is empty if there are none. Before you use an index,
    call `check_petastorm_counts`, which checks that the index fits the dataset.

    Args:
        location: Location of the dataset.
        inventory: Inventory of the dataset version.

    Raises:
        MetadataError: The pickle is damaged, or not an index.
        StorageError: A storage operation failed.
    """
    footer = footer_if_there(location, COMMON_METADATA)
    pickled = None if footer is None else (footer.metadata.metadata or {}).get(PETASTORM_INDEX_KEY)
    if pickled is None:
        return {}
    indexes = petastorm_indexes(pickled, source=f"{location.url}/{COMMON_METADATA}")
    return {name: _as_ours(index, inventory.num_row_groups) for name, index in indexes.items()}


def _as_ours(index: PetastormIndex, num_row_groups: int) -> RowGroupIndex:
    # Numbers out of range are dropped here; the later check of counts reports them with the reason.
    def inside(groups: frozenset[int]) -> list[int]:
        return sorted(group for group in groups if group < num_row_groups)

    if index.values is None:
        return RowGroupIndex(index.name, (index.column,), None, [inside(index.row_groups)])
    # Many values may share one set of row groups; each set is checked once.
    known = {id(groups): groups for groups in index.values.values()}
    lists = {name: inside(groups) for name, groups in known.items()}
    groups = [lists[id(groups)] for groups in index.values.values()]
    return RowGroupIndex(index.name, (index.column,), list(index.values), groups)


def check_petastorm_counts(location: Location, inventory: Inventory) -> None:
    """Raise an error if Petastorm's indexes do not fit the files of the dataset.

    Petastorm stored the number of row groups of each file when it built its indexes; these counts are compared.

    Args:
        location: Location of the dataset.
        inventory: Inventory of the dataset version.

    Raises:
        DatasetChangedError: A file has another number of row groups, is new or is missing.
        MetadataError: Petastorm's counts are missing or damaged, or the file `_metadata` has row groups, so that
            Petastorm numbered row groups in an unknown order.
        StorageError: A storage operation failed.
    """
    summary = footer_if_there(location, _SUMMARY)
    if summary is not None and summary.metadata.num_row_groups:
        raise MetadataError(
            f"{location.url}/{_SUMMARY} must not have row groups: with them, Petastorm numbers row groups in an "
            f"unknown order, so its row-group indexes cannot be used; {_BUILD_AGAIN}"
        )
    before, now = _counted(location), petastorm_counts(inventory)
    if before == now:
        return
    changed = next(path for path in sorted(before.keys() | now.keys()) if before.get(path) != now.get(path))
    raise DatasetChangedError(
        f"{location.url}: the row-group indexes of Petastorm are stale: {changed} had {before.get(changed, 0):,} row "
        f"groups when they were built and has {now.get(changed, 0):,} now; {_BUILD_AGAIN}"
    )


def petastorm_counts(inventory: Inventory) -> dict[str, int]:
    """Return the number of row groups of each file, by path, as Petastorm stores it."""
    counts = np.bincount(inventory.file, minlength=len(inventory.files)).tolist()
    return {file.path: count for file, count in zip(inventory.files, counts, strict=True)}


def _counted(location: Location) -> dict[str, int]:
    footer = footer_if_there(location, COMMON_METADATA)
    text = None if footer is None else (footer.metadata.metadata or {}).get(_COUNTS_KEY)
    source = f"{location.url}/{COMMON_METADATA}"
    if text is None:
        raise MetadataError(
            f"{source} must have Petastorm's row-group counts, which show whether row-group indexes are stale, got "
            f"none; {_BUILD_AGAIN}"
        )
    try:
        counts = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise MetadataError(
            f"{source}: Petastorm's row-group counts are not valid JSON: {problem}; {_BUILD_AGAIN}"
        ) from None
    if not isinstance(counts, dict) or not all(type(count) is int for count in counts.values()):
        raise MetadataError(f"{source}: Petastorm's row-group counts must be one integer per file; {_BUILD_AGAIN}")
    return counts
