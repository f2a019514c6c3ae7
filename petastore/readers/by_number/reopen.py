"""A dataset as a forked child may use it: nothing of it is shared with threads that only the parent has."""

from __future__ import annotations

import copy
import dataclasses

from petastore.dataset import Dataset
from petastore.storage.footers.footer_cache import FooterCache

__all__ = ["reopened"]


def reopened(dataset: Dataset) -> Dataset:
    """The same version of the same dataset, with a filesystem and a footer cache of its own.

    After a fork, a lock that some thread of the parent held is held for ever, and clients of object stores have
    connections and event loops that are the parent's. Local filesystems have neither, and filesystems that a user wrote
    in Python are left as they are.

    Example:
        >>> import tempfile, petastore
        >>> schema = petastore.Unischema("user", [petastore.UnischemaField("id", "int64")])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = petastore.write_dataset(folder + "/users", schema, [{"id": 1}])
        ...     dataset = petastore.open_dataset(folder + "/users")
        >>> reopened(dataset) == dataset, reopened(dataset).footers is dataset.footers
        (True, False)
    """
    location = dataset.location
    kind = str(location.filesystem.type_name)
    if kind != "local" and (kind.startswith("py::fsspec") or not kind.startswith("py::")):
        location = dataclasses.replace(location, filesystem=copy.deepcopy(location.filesystem))
    return dataclasses.replace(dataset, location=location, footers=FooterCache())
