"""A DataFrame's columns as trainers take them: ML vectors are arrays, floats have one dtype, and arrays have a shape.

Plain functions of the plan, the same on classic and Connect sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from petastore.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["FloatDtype", "observing_shapes", "quoted", "tensor_columns"]

FloatDtype = Literal["float32", "float64"]


def tensor_columns(df: DataFrame, dtype: FloatDtype | None) -> DataFrame:
    """The same rows with ML vectors as arrays, and all floats, also inside arrays, of one dtype.

    Args:
        df: Any DataFrame.
        dtype: What floats become. None leaves them, and vectors, whose numbers are doubles, become arrays of these.

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

        # vector_to_array fails on a missing vector instead of giving a missing array.
        return functions.when(column.isNotNull(), vector_to_array(column, dtype or "float64"))
    if isinstance(spark_type, UserDefinedType):
        raise InvalidArgumentError(
            f"column {name!r} is of the type {type(spark_type).__name__}, which has no tensor; convert it to arrays or "
            "numbers, or drop it"
        )
    cast = _with_floats(spark_type, dtype)
    return column if cast == spark_type else column.cast(cast)


def _with_floats(spark_type: Any, dtype: FloatDtype | None) -> Any:
    """The type with its floats as `dtype`, through arrays."""
    from pyspark.sql.types import ArrayType, DoubleType, FloatType

    if isinstance(spark_type, ArrayType):
        return ArrayType(_with_floats(spark_type.elementType, dtype), spark_type.containsNull)
    if dtype is None or not isinstance(spark_type, (FloatType, DoubleType)):
        return spark_type
    return FloatType() if dtype == "float32" else DoubleType()


def observing_shapes(df: DataFrame) -> tuple[DataFrame, Callable[[], dict[str, tuple[int | None, ...]]]]:
    """A DataFrame that notes how long its arrays are while it is written, at no further pass over the data.

    Args:
        df: Any DataFrame.

    Returns:
        The DataFrame to write, and a function to be called after the write: column name to shape, for columns of
        arrays. A dimension is free (None) where rows differ in it, or where there is no row.
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
    """Of each level of a nested array, outermost first: its least and its greatest size in a row."""
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
    """The name of a column as Spark's expressions take it: a dot in it is no struct's.

    Example:
        >>> print(quoted("grid.2"))
        `grid.2`
    """
    return "`" + name.replace("`", "``") + "`"
