"""DataFrames before they are written: rows in random order, and no tiny files. Plain functions of Spark's plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from petastore.errors import InvalidArgumentError, MissingExtraError
from petastore.plan.request import whole_number
from petastore.spark.tensor_columns import quoted

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
        shuffle: A seed: each row goes to a place that follows from the seed and its values, so a task that Spark runs
            again, because an executor was lost, deals the same rows to the same partitions, and none is lost or there
            twice. Rows that are equal lie together. Maps and variants cannot be looked at: where a DataFrame has no
            other column, places are drawn, and a task that runs again may deal rows otherwise. None keeps rows near
            those that they are with.
        files: So many partitions, of about equal numbers of rows; Spark writes a file for each. None lets Spark decide
            by bytes (`spark.sql.adaptive.advisoryPartitionSizeInBytes`, 64 MiB), so that small partitions share a file.

    Returns:
        A DataFrame with the same columns.

    Raises:
        InvalidArgumentError: An argument cannot be.
        MissingExtraError: pyspark is not installed.
    """
    try:
        from pyspark.sql import functions
    except ImportError as problem:
        raise MissingExtraError("prepare_dataframe", package="pyspark", extra="spark") from problem
    number = None if files is None else whole_number(files, name="files", least=1)
    if not hasattr(df, "repartition"):
        raise InvalidArgumentError(f"prepare_dataframe takes a DataFrame of Spark, but {df!r:.100} was given")
    if shuffle is None:
        return df.hint("rebalance") if number is None else df.repartition(number)
    seed = whole_number(shuffle, name="shuffle", least=-(2**63))
    told = [functions.col(quoted(field.name)) for field in df.schema.fields if _is_hashable(field.dataType)]
    place = functions.xxhash64(functions.lit(seed), *told) if told else functions.rand(seed)
    placed = df.withColumn(_KEY, place)
    dealt = placed.repartition(_KEY) if number is None else placed.repartition(number, _KEY)
    return dealt.sortWithinPartitions(_KEY).drop(_KEY)


def _is_hashable(spark_type: Any) -> bool:
    """Whether Spark hashes values of the type: of maps and variants, equal ones may be stored unlike each other."""
    if hasattr(spark_type, "elementType"):
        return _is_hashable(spark_type.elementType)
    if hasattr(spark_type, "fields"):
        return all(_is_hashable(field.dataType) for field in spark_type.fields)
    return spark_type.typeName() not in ("map", "variant")
