"""Truth: what a filter says of each row, worked out on whole columns as they are stored.

Numbers and times are viewed as arrays of the field's dtype; text and bytes are compared by Arrow as UTF-8, decimals at
their own scale. No Python object is made for a row, but for decimals that are stored as text.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from petastore.arrow.memory import flags_of
from petastore.codecs.arrow.arrow_to_numpy import plain_layout
from petastore.codecs.registry import codec_of
from petastore.decoding.decode import decode_cells
from petastore.expressions.bind import Test, decimal_test
from petastore.expressions.expression import Expression, fold
from petastore.schema.field import UnischemaField

__all__ = ["true_rows"]

_COMPARE = {"==": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_COMPARE_CELLS = {"==": pc.equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}


def true_rows(
    expression: Expression, columns: Mapping[str, Any], fields: Mapping[str, UnischemaField]
) -> NDArray[np.bool_]:
    """Where a filter is true; where it is null or false, the row is dropped.

    Args:
        expression: The filter, bound (`petastore.expressions.bind`).
        columns: Of each column that it looks at: its stored cells, a `pyarrow.Array`.
        fields: Their fields.

    Returns:
        Shape (rows,).

    Raises:
        DecodeError: A cell is not what its field declares; `row` is its position.
    """
    truth = fold(expression, lambda test: _tested(test, columns[test.column], fields[test.column]))
    return truth.is_true


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class _Truth:
    """Where the outcome is true and where it is false, shape (rows,); elsewhere it is null."""

    is_true: NDArray[np.bool_]
    is_false: NDArray[np.bool_]

    def __and__(self, other: _Truth) -> _Truth:
        return _Truth(self.is_true & other.is_true, self.is_false | other.is_false)

    def __or__(self, other: _Truth) -> _Truth:
        return _Truth(self.is_true | other.is_true, self.is_false & other.is_false)

    def __invert__(self) -> _Truth:
        return _Truth(self.is_false, self.is_true)


def _tested(test: Test, cells: Any, field: UnischemaField) -> _Truth:
    missing = flags_of(cells.is_null())
    if test.operator == "null":
        return _Truth(missing, ~missing)
    passed = np.full(len(cells), test.operand) if test.operator == "constant" else _passed(test, cells, field)
    return _Truth(passed & ~missing, ~passed & ~missing)


def _passed(test: Test, cells: Any, field: UnischemaField) -> NDArray[np.bool_]:
    """Where the value passes the test; anything where it is missing."""
    cells = plain_layout(cells)
    if isinstance(cells, pa.DictionaryArray):
        cells = cells.dictionary_decode()
    if field.numpy_dtype in (np.str_, np.bytes_):
        return _passed_cells(test, cells.cast(pa.large_binary()))
    if field.numpy_dtype is Decimal and pa.types.is_decimal(cells.type):
        narrow = cells.type.bit_width < 128
        stored = pa.decimal128(cells.type.precision, cells.type.scale) if narrow else cells.type
        return _passed_cells(decimal_test(test, stored.precision, stored.scale), cells.cast(stored))
    values = decode_cells(cells, field, codec_of(field), max_cell_bytes=None).values  # no text
    return _passed_values(test, values.view(np.int64) if values.dtype.kind in "mM" else values)


def _passed_cells(test: Test, cells: Any) -> NDArray[np.bool_]:
    if test.operator == "constant":
        return np.full(len(cells), test.operand)
    if test.operator == "in":
        return flags_of(pc.is_in(cells, value_set=pa.array(test.operand, cells.type)))
    compared = _COMPARE_CELLS[test.operator](cells, pa.scalar(test.operand, cells.type))
    return flags_of(compared.fill_null(False))


def _passed_values(test: Test, values: NDArray[Any]) -> NDArray[np.bool_]:
    if values.dtype == np.dtype(object):
        return _passed_objects(test, values)
    if test.operator == "in":
        return np.isin(values, np.array(test.operand, dtype=values.dtype))
    found: NDArray[np.bool_] = _COMPARE[test.operator](values, test.operand)
    return found


def _passed_objects(test: Test, values: NDArray[Any]) -> NDArray[np.bool_]:
    if test.operator == "in":
        among = frozenset(test.operand)
        return np.fromiter((value in among for value in values), np.bool_, count=len(values))
    compare = _COMPARE[test.operator]
    passed = (value is not None and compare(value, test.operand) for value in values)
    return np.fromiter(passed, np.bool_, count=len(values))
