"""Row-group indexes that Petastorm stored, and whether they may still be believed.

Petastorm's indexes say nothing of the files that they were built from. What is left to compare are the row groups of
each file, which Petastorm wrote down beside them: an index is refused where they are others now, or were never written.
A file that was rewritten with as many row groups as before cannot be told; build the index anew after such a change.
"""

from __future__ import annotations

import json

import numpy as np

from petastore.errors import DatasetChangedError, MetadataError
from petastore.indexers import RowGroupIndex
from petastore.inventory import Inventory
from petastore.storage.files.location import Location
from petastore.storage.footers.footers import footer_if_there
from petastore.storage.metadata.manifest import COMMON_METADATA
from petastore.storage.petastorm.petastorm_index import PETASTORM_INDEX_KEY, PetastormIndex, petastorm_indexes

__all__ = ["check_petastorm_counts", "read_petastorm_indexes"]

_COUNTS_KEY = b"dataset-toolkit.num_row_groups_per_file.v1"
_SUMMARY = "_metadata"
_AGAIN = "build them again with petastore.indexing.build_rowgroup_index"


def read_petastorm_indexes(location: Location, inventory: Inventory) -> dict[str, RowGroupIndex]:
    """The indexes that Petastorm pickled into `_common_metadata`, by name; none where there is no such key.

    Whether they fit the dataset is for `check_petastorm_counts` to say, once one of them is used.

    Args:
        location: The dataset's directory.
        inventory: The version of the dataset that is read.

    Raises:
        MetadataError: The pickle is damaged, or no index.
        StorageError: The storage refused.
    """
    footer = footer_if_there(location, COMMON_METADATA)
    pickled = None if footer is None else (footer.metadata.metadata or {}).get(PETASTORM_INDEX_KEY)
    if pickled is None:
        return {}
    indexes = petastorm_indexes(pickled, source=f"{location.url}/{COMMON_METADATA}")
    return {name: _as_ours(index, inventory.num_row_groups) for name, index in indexes.items()}


def _as_ours(index: PetastormIndex, num_row_groups: int) -> RowGroupIndex:
    # What is out of range is left to the check of counts, which says why.
    def inside(groups: frozenset[int]) -> list[int]:
        return sorted(group for group in groups if group < num_row_groups)

    if index.values is None:
        return RowGroupIndex(index.name, (index.column,), None, [inside(index.row_groups)])
    # Many values may share one set of row groups; each set is looked at once.
    known = {id(groups): groups for groups in index.values.values()}
    lists = {name: inside(groups) for name, groups in known.items()}
    groups = [lists[id(groups)] for groups in index.values.values()]
    return RowGroupIndex(index.name, (index.column,), list(index.values), groups)


def check_petastorm_counts(location: Location, inventory: Inventory) -> None:
    """Refuse the indexes of Petastorm where the row groups of the dataset are not those that it counted.

    Args:
        location: The dataset's directory.
        inventory: The version of the dataset that is read.

    Raises:
        DatasetChangedError: A file has another number of row groups, is new or is gone.
        MetadataError: Petastorm's counts are missing or damaged, or it numbered row groups in an order of its own.
        StorageError: The storage refused.
    """
    summary = footer_if_there(location, _SUMMARY)
    if summary is not None and summary.metadata.num_row_groups:
        raise MetadataError(
            f"{location.url}/{_SUMMARY} has row groups: Petastorm then numbers them in the order of a directory "
            f"listing, which nobody knows any more, so its row-group indexes cannot be used; {_AGAIN}"
        )
    before, now = _counted(location), _counts(inventory)
    if before == now:
        return
    changed = next(path for path in sorted(before.keys() | now.keys()) if before.get(path) != now.get(path))
    raise DatasetChangedError(
        f"{location.url}: the row-group indexes of Petastorm are stale: {changed} had {before.get(changed, 0):,} row "
        f"groups when they were built and has {now.get(changed, 0):,} now; {_AGAIN}"
    )


def _counts(inventory: Inventory) -> dict[str, int]:
    counts = np.bincount(inventory.file, minlength=len(inventory.files)).tolist()
    return {file.path: count for file, count in zip(inventory.files, counts, strict=True)}


def _counted(location: Location) -> dict[str, int]:
    footer = footer_if_there(location, COMMON_METADATA)
    text = None if footer is None else (footer.metadata.metadata or {}).get(_COUNTS_KEY)
    source = f"{location.url}/{COMMON_METADATA}"
    if text is None:
        raise MetadataError(
            f"{source} does not have Petastorm's row-group counts, so nothing tells whether its row-group indexes are "
            f"stale; {_AGAIN}"
        )
    try:
        counts = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise MetadataError(f"{source}: Petastorm's row-group counts are damaged: {problem}") from None
    if not isinstance(counts, dict) or not all(type(count) is int for count in counts.values()):
        raise MetadataError(f"{source}: Petastorm's row-group counts are no numbers by file")
    return counts
