"""Prepare DataFrames before writing: shuffle, repartition and convert columns.

Repartitioning avoids tiny files. ML vectors become arrays, all floats get one dtype, and the shapes of arrays are
recorded. The functions work on classic and Connect sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from petastore.errors import InvalidArgumentError, MissingExtraError
from petastore.plan.request import whole_number

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["FloatDtype", "observing_shapes", "prepare_dataframe", "quoted", "tensor_columns"]

FloatDtype = Literal["float32", "float64"]


def tensor_columns(df: DataFrame, dtype: FloatDtype | None) -> DataFrame:
    """Convert ML vectors to arrays, and all floats to one dtype, also inside arrays.

    Return a DataFrame with the same rows.

    Args:
        df: Any DataFrame.
        dtype: Dtype to which floats are cast. With None, floats are unchanged, and vectors become arrays of doubles.

    Raises:
        InvalidArgumentError: A column is of a user-defined type other than an ML vector.
    """
    from pyspark.sql import functions

    columns = []
    for field in df.schema.fields:
        column = functions.col(quoted(field.name))
        columns.append(_converted(column, field.dataType, field.name, dtype).alias(field.name))
    return df.select(*columns)


def _converted(column: Any, spark_type: Any, name: str, dtype: FloatDtype | None) -> Any:
    from pyspark.sql import functions
    from pyspark.sql.types import UserDefinedType

    if type(spark_type).__name__ == "VectorUDT":
        from pyspark.ml.functions import vector_to_array

        # vector_to_array raises an error for a missing vector instead of returning null.
        return functions.when(column.isNotNull(), vector_to_array(column, dtype or "float64"))
    if isinstance(spark_type, UserDefinedType):
        raise InvalidArgumentError(
            f"column {name!r} must have a type that can become a tensor, got {type(spark_type).__name__}. Convert it "
            "to arrays or numbers, or drop it"
        )
    cast = _with_floats(spark_type, dtype)
    return column if cast == spark_type else column.cast(cast)


def _with_floats(spark_type: Any, dtype: FloatDtype | None) -> Any:
    """Return a Spark type in which all floats have `dtype`, also inside arrays."""
    from pyspark.sql.types import ArrayType, DoubleType, FloatType

    if isinstance(spark_type, ArrayType):
        return ArrayType(_with_floats(spark_type.elementType, dtype), spark_type.containsNull)
    if dtype is None or not isinstance(spark_type, (FloatType, DoubleType)):
        return spark_type
    return FloatType() if dtype == "float32" else DoubleType()


def observing_shapes(df: DataFrame) -> tuple[DataFrame, Callable[[], dict[str, tuple[int | None, ...]]]]:
    """Return a DataFrame that records the lengths of its arrays while Spark writes it.

    A second Spark job is not needed.

    Args:
        df: Any DataFrame.

    Returns:
        The DataFrame to write, and a function to call after the write, which returns a dict from column name to shape
        for columns of arrays. A dimension is None if it differs between rows, or if there are no rows.
    """
    from pyspark.sql import Observation, functions

    depths = {field.name: _depth(field.dataType) for field in df.schema.fields}
    depths = {name: depth for name, depth in depths.items() if depth}
    if not depths:
        return df, dict
    observation = Observation()
    sizes: list[Any] = []
    for number, (name, depth) in enumerate(depths.items()):
        for level, (least, most) in enumerate(_sizes(functions.col(quoted(name)), depth)):
            sizes.append(functions.min(least).alias(f"least_{number}_{level}"))
            sizes.append(functions.max(most).alias(f"most_{number}_{level}"))

    def shapes() -> dict[str, tuple[int | None, ...]]:
        found: Mapping[str, int | None] = observation.get
        return {
            name: tuple(_agreed(found, f"{number}_{level}") for level in range(depth))
            for number, (name, depth) in enumerate(depths.items())
        }

    return df.observe(observation, *sizes), shapes


def _sizes(column: Any, depth: int) -> Iterator[tuple[Any, Any]]:
    """Yield Spark expressions for the minimum and maximum length of nested arrays.

    There is one pair (minimum, maximum) for each level of nesting, outermost first.
    """
    from pyspark.sql import functions

    yield functions.array_size(column), functions.array_size(column)
    for _ in range(depth - 1):
        inner = functions.transform(column, functions.array_size)
        yield functions.array_min(inner), functions.array_max(inner)
        column = functions.flatten(column)


def _agreed(found: Mapping[str, int | None], key: str) -> int | None:
    least, most = found.get(f"least_{key}"), found.get(f"most_{key}")
    return least if least == most else None


def _depth(spark_type: Any) -> int:
    return 1 + _depth(spark_type.elementType) if hasattr(spark_type, "elementType") else 0


def quoted(name: str) -> str:
    """Quote a column name for Spark expressions, in which a dot means a struct field.

    Example:
        >>> print(quoted("grid.2"))
        `grid.2`
    """
    return "`" + name.replace("`", "``") + "`"


_KEY = "petastore_place"


def prepare_dataframe(df: DataFrame, *, shuffle: int | None = None, files: int | None = None) -> DataFrame:
    """Shuffle and repartition a DataFrame before writing a training dataset.

    This takes one Spark shuffle.

    Readers shuffle rows within a buffer of several row groups. If neighboring rows are similar, as in tables sorted by
    day or label, a full shuffle before writing makes every batch better mixed.

    Args:
        df: Any DataFrame, raw or encoded.
        shuffle: Seed of the shuffle; None does not shuffle. Rows are partitioned by a hash of their values and the
            seed. Therefore a task that Spark retries sends the same rows to the same partitions, and no row is lost or
            duplicated. Equal rows are stored next to each other. Maps and variants cannot be hashed: if the DataFrame
            has no other column, partitions are random, and a retried task may send rows to other partitions.
        files: Number of partitions, with about equal numbers of rows; Spark writes one file per partition. None lets
            Spark merge small partitions by size (`spark.sql.adaptive.advisoryPartitionSizeInBytes`, 64 MiB).

    Returns:
        A DataFrame with the same columns.

    Raises:
        InvalidArgumentError: An argument is invalid; the message names it.
        MissingExtraError: pyspark is not installed.
    """
    try:
        from pyspark.sql import functions
    except ImportError as problem:
        raise MissingExtraError("prepare_dataframe", package="pyspark", extra="spark") from problem
    number = None if files is None else whole_number(files, name="files", least=1)
    if not hasattr(df, "repartition"):
        raise InvalidArgumentError(f"df must be a Spark DataFrame, got {df!r:.100}")
    if shuffle is None:
        return df.hint("rebalance") if number is None else df.repartition(number)
    seed = whole_number(shuffle, name="shuffle", least=-(2**63))
    told = [functions.col(quoted(field.name)) for field in df.schema.fields if _is_hashable(field.dataType)]
    place = functions.xxhash64(functions.lit(seed), *told) if told else functions.rand(seed)
    placed = df.withColumn(_KEY, place)
    dealt = placed.repartition(_KEY) if number is None else placed.repartition(number, _KEY)
    return dealt.sortWithinPartitions(_KEY).drop(_KEY)


def _is_hashable(spark_type: Any) -> bool:
    """Return whether Spark can hash values of the type.

    Spark cannot hash maps and variants, because equal values may have several forms.
    """
    if hasattr(spark_type, "elementType"):
        return _is_hashable(spark_type.elementType)
    if hasattr(spark_type, "fields"):
        return all(_is_hashable(field.dataType) for field in spark_type.fields)
    return spark_type.typeName() not in ("map", "variant")
