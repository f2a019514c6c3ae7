"""DataFrames before they are written: rows in random order, and no tiny files. Plain functions of Spark's plans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from petastore.errors import MissingExtraError, RequestError
from petastore.plan.request import whole_number

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["prepare_dataframe"]

_KEY = "petastore_place"


def prepare_dataframe(df: DataFrame, *, shuffle: int | None = None, files: int | None = None) -> DataFrame:
    """The same rows, arranged for a dataset to train on; write what comes back. Costs one shuffle of Spark's.

    Readers shuffle what they read, from several row groups at a time. Where rows that lie together are alike, as in
    tables that are sorted by day or label, each batch is better mixed after a shuffle of all rows, once, by the writer.

    Args:
        df: Any DataFrame; it may be encoded already.
        shuffle: A seed: each row goes to a random place. The same rows in the same partitions get the same places. None
            keeps rows near those that they are with.
        files: So many partitions, of about equal numbers of rows; Spark writes a file for each. None lets Spark decide
            by bytes (`spark.sql.adaptive.advisoryPartitionSizeInBytes`, 64 MiB), so that small partitions share a file.

    Returns:
        A DataFrame with the same columns.

    Raises:
        RequestError: An argument cannot be.
        MissingExtraError: pyspark is not installed.
    """
    try:
        from pyspark.sql import functions
    except ImportError as problem:
        raise MissingExtraError("prepare_dataframe", package="pyspark", extra="spark") from problem
    number = None if files is None else whole_number(files, name="files", least=1)
    if not hasattr(df, "repartition"):
        raise RequestError(f"prepare_dataframe takes a DataFrame of Spark, but {df!r:.100} was given")
    if shuffle is None:
        return df.hint("rebalance") if number is None else df.repartition(number)
    seed = whole_number(shuffle, name="shuffle", least=-(2**63))
    placed = df.withColumn(_KEY, functions.rand(seed))
    dealt = placed.repartition(_KEY) if number is None else placed.repartition(number, _KEY)
    return dealt.sortWithinPartitions(_KEY).drop(_KEY)
