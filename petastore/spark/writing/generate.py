"""Petastorm's `generate_petastorm_metadata`: its arguments, and a name in place of a schema."""

from __future__ import annotations

import importlib
import os
import warnings
from typing import Any

from petastore.errors import InvalidArgumentError
from petastore.inventory import Inventory
from petastore.schema import Unischema
from petastore.writers.generate import generate_metadata

__all__ = ["generate_petastorm_metadata", "schema_named"]


def generate_petastorm_metadata(
    spark: Any,  # noqa: ARG001 - Petastorm read footers with it
    dataset_url: str | os.PathLike[str],
    unischema_class: str | None = None,
    use_summary_metadata: bool = False,
    hdfs_driver: str | None = None,  # noqa: ARG001 - fsspec finds the driver of HDFS
) -> Inventory:
    """`petastore.writers.generate.generate_metadata` with the arguments of Petastorm's function.

    Args:
        spark: Not needed; None will do.
        dataset_url: The directory.
        unischema_class: Where in Python the schema is, `"package.module.name"`; None is what the dataset declares.
        use_summary_metadata: Means nothing any more; True says so in a warning.
        hdfs_driver: Means nothing any more.

    Returns:
        The inventory as it was written.

    Raises:
        InvalidArgumentError: There is no schema of that name.
        SchemaError: A file does not keep the schema.
        DatasetNotFoundError: There are no data files.
    """
    if use_summary_metadata:
        warnings.warn(
            "use_summary_metadata means nothing any more: the dataset's own manifest takes the place of _metadata",
            UserWarning,
            stacklevel=2,
        )
    return generate_metadata(dataset_url, None if unischema_class is None else schema_named(unischema_class))


def schema_named(name: str) -> Unischema:
    """The schema at a place in Python, whose module is imported.

    Args:
        name: `"package.module.name"`, of a `Unischema` in that module.

    Raises:
        InvalidArgumentError: There is none.

    Example:
        >>> schema_named("math.pi")
        Traceback (most recent call last):
        petastore.errors.InvalidArgumentError: math.pi is no Unischema, but 3.141592653589793
    """
    module, _, attribute = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as problem:
        raise InvalidArgumentError(
            f"there is no schema at {name!r}: {problem}; name it as package.module.name"
        ) from problem
    if not isinstance(found, Unischema):
        raise InvalidArgumentError(f"{name} is no Unischema, but {found!r:.200}")
    return found
