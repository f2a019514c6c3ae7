"""Find the row-group indexes of a dataset: petastore's own, and after them Petastorm's."""

from __future__ import annotations

from collections.abc import Iterable

from petastore.errors import InvalidArgumentError, MetadataError
from petastore.indexers import RowGroupIndex
from petastore.inventory import Inventory
from petastore.storage.files.location import Location
from petastore.storage.metadata.legacy_index import check_petastorm_counts, read_petastorm_indexes
from petastore.storage.metadata.row_group_index import read_index, stored_index_names

__all__ = ["find_indexes", "index_names"]


def index_names(location: Location, inventory: Inventory) -> list[str]:
    """Names of the indexes of a dataset, sorted.

    Raises:
        StorageError: The storage refused.
    """
    try:
        of_petastorm = list(read_petastorm_indexes(location, inventory))
    except MetadataError:
        of_petastorm = []  # whoever asks for one of them by name is told
    return sorted({*stored_index_names(location), *of_petastorm})


def find_indexes(
    location: Location, inventory: Inventory, names: Iterable[str] | None = None
) -> dict[str, RowGroupIndex]:
    """Indexes of a dataset by name.

    Args:
        location: The dataset's directory.
        inventory: The version of the dataset that is read.
        names: Which ones; None is all.

    Raises:
        InvalidArgumentError: There is no index of that name, or `location` names single files.
        DatasetChangedError: One of them is stale.
        MetadataError: One of them is damaged, or newer than this release reads.
        StorageError: The storage refused.
    """
    if location.paths is not None:
        raise InvalidArgumentError(
            f"row-group indexes belong to whole datasets, but {location.url} names single files; read the directory, "
            "or filter without rowgroup_selector"
        )
    own = stored_index_names(location)
    wanted = None if names is None else list(dict.fromkeys(names))
    of_petastorm = {} if wanted is not None and set(wanted) <= set(own) else read_petastorm_indexes(location, inventory)
    known = sorted({*own, *of_petastorm})
    for name in wanted or ():
        if name not in known:
            has = f"has {', '.join(map(repr, known))}" if known else "has none"
            raise InvalidArgumentError(
                f"there is no row-group index {name!r}: {location.url} {has}. "
                "petastore.indexing.build_rowgroup_index builds them"
            )
    indexes: dict[str, RowGroupIndex] = {}
    for name in known if wanted is None else wanted:
        index = read_index(location, inventory, name) if name in own else None
        if index is None:
            if name not in of_petastorm:
                raise InvalidArgumentError(f"the row-group index {name!r} of {location.url} was deleted meanwhile")
            check_petastorm_counts(location, inventory)
            index = of_petastorm[name]
        indexes[name] = index
    return indexes
