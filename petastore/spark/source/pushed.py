"""Filters that Spark hands down, and the row groups that statistics leave of them. Spark itself asks each row again.

Only what surely means the same here and there is taken: whether integers, booleans and text are equal to, less or more
than something, or missing. Spark sorts NaN above all numbers, so floating-point numbers are not.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.codecs import ScalarCodec
from petastore.dataset import Dataset
from petastore.errors import RequestError
from petastore.expressions import Expression, bind, col
from petastore.plan.prune import prune
from petastore.schema import UnischemaField
from petastore.storage.footers.statistics import read_statistics

__all__ = ["row_groups_left"]

# By name: Spark 4.0 has none of these classes.
_COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "EqualTo": operator.eq,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "In": lambda column, values: column.isin(values),
}


def row_groups_left(dataset: Dataset, filters: Iterable[Any]) -> NDArray[np.int64]:
    """Numbers of the row groups that may have a row for which all filters are true, ascending.

    Args:
        dataset: The dataset.
        filters: Spark's `pyspark.sql.datasource.Filter`s; those that are not understood leave all.

    Raises:
        DatasetChangedError: A file is not the one that the inventory describes.
        StorageError: A footer cannot be read.

    Example:
        >>> import petastore, tempfile
        >>> from pyspark.sql.datasource import GreaterThan
        >>> url = tempfile.mkdtemp() + "/ids"
        >>> _ = petastore.write_dataset(url, {"id": range(10)}, rows_per_row_group=3)
        >>> row_groups_left(petastore.open_dataset(url), [GreaterThan(("id",), 5)]).tolist()
        [2, 3]
    """
    groups = np.arange(dataset.inventory.num_row_groups)
    fields = {field.name: field for field in dataset.schema if _is_taken(field, dataset)}
    understood = [bound for one in filters if (bound := _bound(one, fields)) is not None]
    if not understood:
        return groups
    asked = functools.reduce(operator.and_, understood)
    columns = [fields[name] for name in asked.columns]
    known = read_statistics(dataset.location, dataset.inventory, columns, groups=groups, footers=dataset.footers)
    return np.flatnonzero(~prune(asked, known, dataset.inventory.rows).none)


def _is_taken(field: UnischemaField, dataset: Dataset) -> bool:
    if field.shape or not (field.codec is None or isinstance(field.codec, ScalarCodec)):
        return False
    if field.name in (*dataset.partition_names, *dataset.stored_keys):
        return False  # directories say what they are, and footers do not
    return field.numpy_dtype is np.str_ or field.dtype.kind in "iub"


def _bound(asked: Any, fields: Mapping[str, UnischemaField]) -> Expression | None:
    expression = _expression(asked)
    try:
        return None if expression is None else bind(expression, fields, among="the dataset")
    except RequestError:  # another column, or a value of another kind
        return None


def _expression(asked: Any) -> Expression | None:
    """The filter as one of ours; None where it is not understood."""
    kind = type(asked).__name__
    if kind == "Not":
        child = _expression(asked.child)
        return None if child is None else ~child
    path: Sequence[str] = getattr(asked, "attribute", ())
    if len(path) != 1:
        return None
    if kind in ("IsNull", "IsNotNull"):
        return col(path[0]).is_null() if kind == "IsNull" else col(path[0]).is_valid()
    if kind not in _COMPARISONS or asked.value is None:
        return None
    try:
        found: Expression = _COMPARISONS[kind](col(path[0]), asked.value)
    except RequestError:  # null among the values, or nothing that can be compared
        return None
    return found
