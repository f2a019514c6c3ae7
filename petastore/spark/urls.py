"""One directory, two spellings: the URL that Spark takes, and the one that this process opens."""

from __future__ import annotations

import re

from pyarrow import fs

from petastore.storage.files.location import Location

__all__ = ["driver_url", "spark_url"]

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_DBFS = re.compile(r"^dbfs:(?:///|/(?!/))")


def spark_url(given: str, location: Location) -> str:
    """The URL as Spark takes it: a local path with its scheme, so that no default filesystem is put in front.

    Args:
        given: As the user wrote it.
        location: What `open_location` made of it.
    """
    local = isinstance(location.filesystem, fs.LocalFileSystem) and not _SCHEME.match(given)
    return location.url if local else given


def driver_url(given: str) -> str:
    """The URL as Python opens it: `dbfs:/` is mounted at `/dbfs` on every machine of Databricks.

    Example:
        >>> driver_url("dbfs:/tmp/cache"), driver_url("dbfs:///tmp/cache"), driver_url("s3://bucket/cache")
        ('file:/dbfs/tmp/cache', 'file:/dbfs/tmp/cache', 's3://bucket/cache')
    """
    return _DBFS.sub("file:/dbfs/", given, count=1)
