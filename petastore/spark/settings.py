"""Spark settings for Parquet and Arrow, and locks between `materialize_dataset` blocks that change them.

Measured on pyspark 4.3 (`docs/explanation/spark.md`): `parquet.block.row.count.limit` ends a row group at exactly this
number of rows, unless `parquet.block.size` ends it earlier. Parquet checks the size only after
`parquet.page.size.row.check.min` rows, 100 by default, which is too late for large cells.
`parquet.block.size.row.check.min`, which Petastorm sets, no longer has an effect.

A session has one configuration for all threads. A `materialize_dataset` block that changes settings therefore locks the
session. Blocks of other threads run at the same time if they need the same settings; otherwise they wait. A nested
block of the same thread does not wait: it changes the settings until it ends.

`spark_url` and `driver_url` convert between Spark's URL of a directory and the URL that petastore opens.

While a block uses the lock of a session, the session's configuration contains the name of the lock. The configuration
is the only thing that all Python objects of a session share, in classic and Connect sessions.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import re
import threading
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from pyarrow import fs

from petastore.errors import InvalidArgumentError
from petastore.schema import Unischema
from petastore.storage.files.location import Location
from petastore.writers.parquet import FileLayout

__all__ = ["TIMESTAMP_TYPE", "batch_settings", "driver_url", "parquet_settings", "settings_held", "spark_url"]


TIMESTAMP_TYPE = "spark.sql.parquet.outputTimestampType"
"""The only setting that Spark takes from the session and never from write options."""

_BATCHES = {
    # Measured with cells of 8 KiB: 10 % less CPU time and a third less memory than with Spark's 10,000 rows.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(4 * 1024 * 1024),
    # Rows that Spark reads from Parquet at a time. Spark's default of 4,096 rows of 8 KiB arrays needs 100 MB of values
    # and levels, more than the CPU cache: fewer rows take 10 % less CPU time, and half the garbage collection.
    "spark.sql.parquet.columnarReaderBatchSize": "512",
}
_NO_LIMIT = str(2**31 - 1)
_MIB = 1024 * 1024
# Parquet's own default, and the minimum block if the sizes of all fields are known.
_USUAL_BLOCK = 128 * _MIB
_BLOCK_OF_UNKNOWN_ROWS = 256 * _MIB
# A cell may be larger than its value: arrays have a header, and images may not compress.
_OVERHEAD_OF_A_CELL = 1024


def batch_settings(explicit: Mapping[str, str]) -> dict[str, str]:
    """Return session settings that limit the batches that Spark passes to Python.

    They also limit the rows that Spark reads from Parquet at a time. The settings are equal for all schemas.

    Args:
        explicit: Configuration that was set explicitly in the session. The result omits keys that have another value
            there, so the user's limits stay.

    Example:
        >>> for key, value in batch_settings({}).items():
        ...     print(key, value)
        spark.sql.execution.arrow.maxBytesPerBatch 4194304
        spark.sql.parquet.columnarReaderBatchSize 512
        >>> batch_settings({"spark.sql.execution.arrow.maxBytesPerBatch": "1000000"})
        {'spark.sql.parquet.columnarReaderBatchSize': '512'}
    """
    # Include a key that already has this value: a `settings_held` block of another thread may have set it.
    return {key: value for key, value in _BATCHES.items() if explicit.get(key, value) == value}


def parquet_settings(
    schema: Unischema, *, row_group_size_mb: float | None = None, rows_per_row_group: int | None = None
) -> dict[str, str]:
    """Return settings of Spark's Parquet writer for row groups of a size.

    Use them in the session's configuration, or as write options.

    All keys that determine the end of a row group are returned together, so that no earlier setting remains. Without a
    requested size the result is empty, and the session's settings stay.

    Args:
        schema: Schema of the rows, from whose decoded size the block size is computed.
        row_group_size_mb: Size of a row group in MiB in the writer's buffer, where full pages are compressed.
        rows_per_row_group: Rows per row group; only the last row group of a file has fewer.

    Raises:
        InvalidArgumentError: Both sizes are given, or a size is not a positive number.

    Example:
        >>> from petastore.schema import UnischemaField
        >>> schema = Unischema("user", [UnischemaField("id", "int64")])
        >>> settings = parquet_settings(schema, rows_per_row_group=1500)
        >>> settings["parquet.block.row.count.limit"], int(settings["parquet.block.size"]) // 2**20
        ('1500', 128)
        >>> parquet_settings(schema, row_group_size_mb=1)["parquet.block.size"]
        '1048576'
    """
    asked = FileLayout.of(
        rows_per_row_group=rows_per_row_group, row_group_size_mb=row_group_size_mb, rows_per_file=None
    )
    if rows_per_row_group is not None:
        return {
            "parquet.block.row.count.limit": str(rows_per_row_group),
            "parquet.block.size": str(_block_that_holds(schema, rows_per_row_group)),
            "parquet.page.size.row.check.min": "100",
        }
    if row_group_size_mb is not None:
        return {
            "parquet.block.row.count.limit": _NO_LIMIT,
            "parquet.block.size": str(asked.row_group_bytes),
            "parquet.page.size.row.check.min": "1",
        }
    return {}


def _block_that_holds(schema: Unischema, rows: int) -> int:
    """Return a `parquet.block.size` in bytes that this number of rows does not fill.

    The writer then does not end a row group before this number of rows.
    """
    sizes = [field.decoded_bytes for field in schema]
    known = sum((size or 0) + _OVERHEAD_OF_A_CELL for size in sizes)
    return max(_BLOCK_OF_UNKNOWN_ROWS if None in sizes else _USUAL_BLOCK, 2 * rows * known)


_logger = logging.getLogger(__name__)

_NAME = "petastore.turns"
_PATIENCE_S = 60.0
"""Seconds between the warnings that a waiting block logs."""

_guard = threading.Lock()
_sessions: dict[str, _Turns] = {}


@contextlib.contextmanager
def settings_held(
    spark: Any, settings: Mapping[str, str], *, reason: str, patience_s: float = _PATIENCE_S
) -> Iterator[None]:
    """Apply settings to a Spark session in a `with` block.

    At the end of the block, the previous values are restored, and keys that were not set before are unset. The block
    waits while blocks of other threads use other settings, and logs a warning after each `patience_s` seconds.

    Args:
        spark: A classic or Connect session.
        settings: Settings in `spark.conf` inside the block.
        reason: Name of the block, for messages.
        patience_s: Seconds between warnings while it waits.

    Raises:
        InvalidArgumentError: Two threads in blocks with equal settings both begin a nested block with other settings.
            Without the error, each would wait for the other (deadlock).
    """
    turns = _enter_session(spark)
    try:
        held = turns.begin(spark, settings, reason, patience_s)
        try:
            yield
        finally:
            turns.end(spark, held)
    finally:
        _leave_session(spark, turns)


@dataclasses.dataclass(eq=False)
class _Layer:
    """Settings of one `with` block, and the values that they replaced."""

    settings: dict[str, str]
    before: dict[str, str | None]
    reason: str
    holders: int = 0


class _Turns:
    """Settings of nested blocks in one Spark session, and the lock between threads.

    A layer has the settings of one `with` block. Several threads may share the lowest layer; each higher layer belongs
    to one thread.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.users = 0
        self._changed = threading.Condition()
        self._layers: list[_Layer] = []
        self._blocks: dict[int, int] = {}
        self._climbing = False

    def begin(self, spark: Any, settings: Mapping[str, str], reason: str, patience_s: float) -> tuple[_Layer, int]:
        me = threading.get_ident()
        with self._changed:
            if me not in self._blocks:
                self._wait(lambda: self._open_to(settings), reason, patience_s)
            elif self._layers[-1].settings != settings:
                self._wait_to_be_alone(me, reason, patience_s)
            if not self._layers or self._layers[-1].settings != settings:
                self._layers.append(_Layer(dict(settings), _apply(spark, settings), reason))
            layer = self._layers[-1]
            layer.holders += 1
            self._blocks[me] = self._blocks.get(me, 0) + 1
            return layer, me

    def end(self, spark: Any, held: tuple[_Layer, int]) -> None:
        layer, thread = held
        with self._changed:
            self._blocks[thread] -= 1
            if not self._blocks[thread]:
                del self._blocks[thread]
            layer.holders -= 1
            try:
                if not layer.holders:
                    self._layers.remove(layer)
                    _restore(spark, layer.before)
            finally:
                self._changed.notify_all()

    def _open_to(self, settings: Mapping[str, str]) -> bool:
        if not self._layers:
            return True
        return len(self._layers) == 1 and not self._climbing and self._layers[0].settings == settings

    def _wait_to_be_alone(self, me: int, reason: str, patience_s: float) -> None:
        if self._climbing and set(self._blocks) != {me}:
            raise InvalidArgumentError(
                f"{reason} must not change Spark settings inside another such block while a second thread does the "
                "same, because the threads would wait for each other (deadlock). Do not nest these blocks, or use "
                "session_settings=False"
            )
        self._climbing = True
        try:
            self._wait(lambda: set(self._blocks) == {me}, reason, patience_s)
        finally:
            self._climbing = False

    def _wait(self, ready: Any, reason: str, patience_s: float) -> None:
        while not self._changed.wait_for(ready, timeout=patience_s):
            _logger.warning(
                "%s has waited %.0f s for %s, which uses the Spark session with other settings. To write without "
                "waiting, pass session_settings=False",
                reason,
                patience_s,
                self._layers[-1].reason,
            )


def _enter_session(spark: Any) -> _Turns:
    with _guard:
        name = spark.conf.get(_NAME, None)
        if name not in _sessions:
            name = uuid.uuid4().hex
            spark.conf.set(_NAME, name)
            _sessions[name] = _Turns(name)
        turns = _sessions[name]
        turns.users += 1
        return turns


def _leave_session(spark: Any, turns: _Turns) -> None:
    with _guard:
        turns.users -= 1
        if not turns.users:
            del _sessions[turns.name]
            spark.conf.unset(_NAME)


def _apply(spark: Any, settings: Mapping[str, str]) -> dict[str, str | None]:
    """Set all options, or none on an error; return their previous values."""
    explicit = spark.conf.getAll
    before = {key: explicit.get(key) for key in settings}
    try:
        for key, value in settings.items():
            spark.conf.set(key, value)
    except BaseException:
        _restore(spark, before)
        raise
    return before


def _restore(spark: Any, before: Mapping[str, str | None]) -> None:
    for key, value in before.items():
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_DBFS = re.compile(r"^dbfs:(?:///|/(?!/))")


def spark_url(given: str, location: Location) -> str:
    """Return the URL for Spark.

    A local path gets the scheme `file`, so that Spark does not use its default filesystem.

    Args:
        given: URL as the user wrote it.
        location: Result of `open_location` for the URL.
    """
    local = isinstance(location.filesystem, fs.LocalFileSystem) and not _SCHEME.match(given)
    return location.url if local else given


def driver_url(given: str) -> str:
    """Return the URL with which Python opens a directory.

    `dbfs:/` becomes the path `/dbfs`, where every machine of Databricks mounts it.

    Example:
        >>> driver_url("dbfs:/tmp/cache"), driver_url("dbfs:///tmp/cache"), driver_url("s3://bucket/cache")
        ('file:/dbfs/tmp/cache', 'file:/dbfs/tmp/cache', 's3://bucket/cache')
    """
    return _DBFS.sub("file:/dbfs/", given, count=1)
