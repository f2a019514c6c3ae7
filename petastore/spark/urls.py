"""Conversion between Spark's URL of a directory and this process's URL."""

from __future__ import annotations

import re

from pyarrow import fs

from petastore.storage.files.location import Location

__all__ = ["driver_url", "spark_url"]

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_DBFS = re.compile(r"^dbfs:(?:///|/(?!/))")


def spark_url(given: str, location: Location) -> str:
    """Return the URL for Spark: a local path gets its scheme, so that Spark's default filesystem is not used.

    Args:
        given: URL as the user wrote it.
        location: Result of `open_location` for the URL.
    """
    local = isinstance(location.filesystem, fs.LocalFileSystem) and not _SCHEME.match(given)
    return location.url if local else given


def driver_url(given: str) -> str:
    """Return the URL as Python opens it: `dbfs:/` is mounted at `/dbfs` on every machine of Databricks.

    Example:
        >>> driver_url("dbfs:/tmp/cache"), driver_url("dbfs:///tmp/cache"), driver_url("s3://bucket/cache")
        ('file:/dbfs/tmp/cache', 'file:/dbfs/tmp/cache', 's3://bucket/cache')
    """
    return _DBFS.sub("file:/dbfs/", given, count=1)
