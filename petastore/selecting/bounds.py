"""Check decoded values against the minimum and maximum in the footer.

A decoder may return wrong values without an error. If such a value is outside the bounds that the writer stored, this
check raises an error.
"""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from petastore.arrow import arrow_numbers
from petastore.codecs.arrow.arrow_to_numpy import plain_layout
from petastore.codecs.registry import codec_of
from petastore.decoding.decode import decode_cells
from petastore.errors import DecodeError
from petastore.expressions import ColumnStatistics
from petastore.schema.field import UnischemaField
from petastore.storage.row_groups.opened_file import pyarrow_wheel

__all__ = ["Bounds", "domain_values"]

_SAMPLED = 1024
"""Number of text or decimal cells that a filter checks in each row group.

Checking all cells would take a third of the filter's time.
"""


def domain_values(cells: Any, field: UnischemaField) -> Any:
    """Convert the stored cells of a scalar column to the values that filters compare.

    Args:
        cells: A `pyarrow.Array`, possibly with nulls.
        field: Field of the column, without a codec or with `ScalarCodec`.

    Returns:
        A `pyarrow.Array` of large binary (text and bytes) or of decimals; otherwise a NumPy array: numbers, times as
        int64, or objects. Missing values are arbitrary in NumPy arrays.

    Raises:
        DecodeError: A cell does not match its field; `row` is its position.
    """
    cells = plain_layout(cells)
    if isinstance(cells, pa.DictionaryArray):
        cells = cells.dictionary_decode()
    if field.numpy_dtype in (np.str_, np.bytes_):
        return cells.cast(pa.large_binary())
    if field.numpy_dtype is Decimal and pa.types.is_decimal(cells.type):
        is_narrow = cells.type.bit_width < 128
        return cells.cast(pa.decimal128(cells.type.precision, cells.type.scale)) if is_narrow else cells
    values = decode_cells(cells, field, codec_of(field), max_cell_bytes=None).values
    return values.view(np.int64) if values.dtype.kind in "mM" else values


@dataclasses.dataclass(frozen=True, slots=True)
class Bounds:
    """Minimum and maximum of one column in one row group; None where unknown.

    They are values as filters compare them; see `domain_values`.

    Example:
        >>> Bounds(3, 5).check(np.array([3, 0, 5]), missing=np.array([False, True, False]))
    """

    low: Any
    high: Any

    @classmethod
    def of(cls, statistics: ColumnStatistics, group: int) -> Self:
        """Return the bounds of the row group with the number `group`."""
        low = _plain(statistics.minimum[group]) if statistics.has_minimum[group] else None
        return cls(low, _plain(statistics.maximum[group]) if statistics.has_maximum[group] else None)

    @property
    def are_known(self) -> bool:
        """Whether a minimum or maximum is known."""
        return self.low is not None or self.high is not None

    def check(self, domain: Any, missing: NDArray[np.bool_], *, sampled: bool = False) -> None:
        """Raise an error if a value of a column is outside the bounds.

        NumPy object arrays are not checked.

        Args:
            domain: Values of the column, as `domain_values` returns them.
            missing: Mask of missing values, shape (rows,).
            sampled: Whether to compare only 1,024 evenly spaced cells of text or decimals.

        Raises:
            DecodeError: A value is outside the bounds.
        """
        if not self.are_known:
            return
        if not isinstance(domain, np.ndarray):
            self._check_cells(domain, sampled=sampled)
        elif not domain.dtype.hasobject and len(domain):
            self._check_values(domain, missing)

    def _check_values(self, values: NDArray[Any], missing: NDArray[np.bool_]) -> None:
        # Fast path without temporary arrays. A missing value is an arbitrary number; if such a number is outside, the
        # masks below decide.
        if (self.low is None or values.min() >= self.low) and (self.high is None or values.max() <= self.high):
            return
        outside = np.zeros(len(values), np.bool_)
        if self.low is not None:
            outside |= values < self.low
        if self.high is not None:
            outside |= values > self.high
        outside &= ~missing
        if outside.any():
            row = int(np.argmax(outside))
            raise self._error(values[row].item(), row)

    def _check_cells(self, cells: Any, *, sampled: bool) -> None:
        if sampled and len(cells) > _SAMPLED:
            cells = cells.take(arrow_numbers(np.linspace(0, len(cells) - 1, _SAMPLED).astype(np.int64)))
        least, greatest = pc.min_max(cells).values()
        if least.is_valid and self.low is not None and least.as_py() < self.low:
            raise self._error(least.as_py())
        if greatest.is_valid and self.high is not None and greatest.as_py() > self.high:
            raise self._error(greatest.as_py())

    def _error(self, value: Any, row: int | None = None) -> DecodeError:
        low, high = (repr(bound)[:80] for bound in (self.low, self.high))
        rule = f"at most {high}" if self.low is None else f"at least {low}" if self.high is None else f"{low} to {high}"
        return DecodeError(
            f"values must be within the minimum and maximum in the footer, {rule}, got {value!r:.80}. Either "
            f"{pyarrow_wheel()} decodes wrongly, or the statistics in the file are wrong. Install another release of "
            "pyarrow and run `petastore verify`",
            row=row,
        )


def _plain(value: Any) -> Any:
    # Comparing a column of int32 or float32 with a NumPy scalar of 64 bits would convert the whole column.
    return value.item() if isinstance(value, np.generic) else value
