"""INT96 timestamps, the 96-bit ones of older Spark, Hive and Impala: read in microseconds, and never cut silently."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow.memory import numbers_of
from petastore.errors import DecodeError
from petastore.storage.footers.footers import Footer

__all__ = ["check_whole_microseconds"]


def check_whole_microseconds(reading: Any, footer: Footer, ordinal: int, leaves: Iterable[int]) -> None:
    """Reject INT96 timestamps with nanoseconds; exact row groups are remembered in the footer.

    Arrow gives INT96 in a unit of choice without a word about what does not fit: nanoseconds wrap around outside of the
    years 1677 to 2262, and microseconds cut the last three digits.

    Args:
        reading: The `petastore.storage.row_groups.open_files.Reading`.
        footer: Of the file.
        ordinal: The row group.
        leaves: Leaf columns to read.

    Raises:
        DecodeError: A timestamp has nanoseconds, so microseconds cannot hold it.
    """
    for leaf in footer.columns.int96_leaves.intersection(leaves):
        if (ordinal, leaf) in footer.whole_microseconds:
            continue
        exact, cut = (
            _integers(reader.read_row_group(ordinal, column_indices=[leaf], use_threads=False).column(0))
            for reader in (reading.nanoseconds(), reading.reader)
        )
        # Both wrap around at 64 bits alike, so that equal integers are equal instants, however far away.
        if not np.array_equal(exact, cut * 1000):
            raise DecodeError(
                "INT96 timestamps must be whole microseconds, as Spark writes them, got nanoseconds or a time out of "
                "range. Write the column as TIMESTAMP(NANOS), or leave it out with schema_fields",
                column=footer.columns.stored.column(leaf).path.partition(".")[0],
                file=footer.file.path,
                row_group=ordinal,
            )
        footer.whole_microseconds.add((ordinal, leaf))


def _integers(column: Any) -> NDArray[np.int64]:
    """The values that are there, of a column that is read with one leaf."""
    return np.concatenate([np.zeros(0, np.int64), *map(_of_leaf, column.chunks)])


def _of_leaf(array: Any) -> NDArray[np.int64]:
    while pa.types.is_nested(array.type):
        is_struct = isinstance(array, pa.StructArray)
        array = array.flatten()[0] if is_struct else array.keys if isinstance(array, pa.MapArray) else array.flatten()
    return numbers_of(array.drop_null().view(pa.int64()))
