"""Which settings make Spark's Parquet writer cut row groups as asked, and hand Python few rows at a time. Pure.

Measured on pyspark 4.3 (`docs/explanation/spark.md`): `parquet.block.row.count.limit` ends a row group at exactly that
many rows unless `parquet.block.size` ends it before. The size is looked at after `parquet.page.size.row.check.min` rows
at the earliest, 100 by default, which is far too late for large cells. `parquet.block.size.row.check.min`, which
Petastorm sets, changes nothing any more.
"""

from __future__ import annotations

from collections.abc import Mapping

from petastore.schema import Unischema
from petastore.writers.layout import Layout

__all__ = ["TIMESTAMP_TYPE", "batch_settings", "parquet_settings"]

TIMESTAMP_TYPE = "spark.sql.parquet.outputTimestampType"
"""The one setting that Spark takes from the session only, never from the options of a write."""

_BATCHES = {
    # Measured with cells of 8 KiB: against Spark's 10,000 rows, a tenth less processor time and a third less memory.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(4 * 1024 * 1024),
    # As many rows as Spark reads from Parquet at a time. Of Spark's 4,096 with arrays of 8 KiB, values and levels are
    # a hundred megabytes, which no processor's cache holds: a tenth less processor time, and half of the collector's.
    "spark.sql.parquet.columnarReaderBatchSize": "512",
}
_NO_LIMIT = str(2**31 - 1)
_MIB = 1024 * 1024
# Parquet's own default, and what is assumed where rows differ in size.
_USUAL_BLOCK = 128 * _MIB
_BLOCK_OF_UNKNOWN_ROWS = 256 * _MIB
# A cell may be longer than its value: the header of an array, the frame of a picture that does not compress.
_OVERHEAD_OF_A_CELL = 1024


def batch_settings(explicit: Mapping[str, str]) -> dict[str, str]:
    """The settings that make Spark read and hand Python some megabytes at a time; the same for all schemas.

    Args:
        explicit: The session's configuration as it was set; a bound that somebody chose stays.

    Example:
        >>> for key, value in batch_settings({}).items():
        ...     print(key, value)
        spark.sql.execution.arrow.maxBytesPerBatch 4194304
        spark.sql.parquet.columnarReaderBatchSize 512
        >>> batch_settings({"spark.sql.execution.arrow.maxBytesPerBatch": "1000000"})
        {'spark.sql.parquet.columnarReaderBatchSize': '512'}
    """
    # A block that another thread holds has set our own: whoever asks for the same shares the session with it.
    return {key: value for key, value in _BATCHES.items() if explicit.get(key, value) == value}


def parquet_settings(
    schema: Unischema, *, row_group_size_mb: float | None = None, rows_per_row_group: int | None = None
) -> dict[str, str]:
    """The Parquet writer's settings for row groups of that size, to be set on the session or given as options.

    All keys that say where a row group ends are given together, so that none is left over from elsewhere. Where
    nothing is asked for there are none: the session's own settings stay.

    Args:
        schema: What the rows are; their decoded size says how large a block must be allowed to grow.
        row_group_size_mb: MiB of a row group as it is buffered: compressed pages, and the ones not yet full.
        rows_per_row_group: Rows of each row group but the last of a file.

    Raises:
        InvalidArgumentError: Both are given, or one is no positive number.

    Example:
        >>> from petastore.schema import UnischemaField
        >>> schema = Unischema("user", [UnischemaField("id", "int64")])
        >>> settings = parquet_settings(schema, rows_per_row_group=1500)
        >>> settings["parquet.block.row.count.limit"], int(settings["parquet.block.size"]) // 2**20
        ('1500', 128)
        >>> parquet_settings(schema, row_group_size_mb=1)["parquet.block.size"]
        '1048576'
    """
    asked = Layout.of(rows_per_row_group=rows_per_row_group, row_group_size_mb=row_group_size_mb, rows_per_file=None)
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
    """Bytes that so many rows do not reach; no more than needed, for Parquet shares the heap out by this number."""
    sizes = [field.decoded_bytes for field in schema]
    known = sum((size or 0) + _OVERHEAD_OF_A_CELL for size in sizes)
    return max(_BLOCK_OF_UNKNOWN_ROWS if None in sizes else _USUAL_BLOCK, 2 * rows * known)
