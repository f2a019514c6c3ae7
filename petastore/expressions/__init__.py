"""Filter expressions, such as `col("split") == "train"`.

This package builds them, also from pyarrow's nested lists, and binds them to a schema. No I/O.
"""

from petastore.expressions.bind import Test, bind
from petastore.expressions.dnf import parse_filters
from petastore.expressions.expression import (
    And,
    Column,
    Comparison,
    Expression,
    Membership,
    Not,
    NullTest,
    Or,
    col,
    fold,
)
from petastore.expressions.statistics import ColumnStatistics

__all__ = [
    "And",
    "Column",
    "ColumnStatistics",
    "Comparison",
    "Expression",
    "Membership",
    "Not",
    "NullTest",
    "Or",
    "Test",
    "bind",
    "col",
    "fold",
    "parse_filters",
]
