"""Check one row group: page checksums, row counts, statistics and every cell.

A cell is valid if the codec decodes it.

Columns are read one after the other, a few rows at a time, so that memory does not depend on the size of row groups.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

from petastore.arrow import flags_of, only_chunk
from petastore.codecs.registry import codec_of
from petastore.dataset import Dataset
from petastore.decoding.decode import DEFAULT_MAX_CELL_BYTES, decode_cells, decoded_sizes, row_ranges
from petastore.errors import DatasetChangedError, DecodeError, FileMissingError, MetadataError
from petastore.expressions import ColumnStatistics
from petastore.plan.row_group_parts import rows_of_part
from petastore.readers.bad_rows.row_check import failing_rows
from petastore.readers.loaded.row_group_reader import at_least
from petastore.schema.field import UnischemaField
from petastore.selecting.bounds import Bounds, domain_values
from petastore.storage.footers.footer import Footer
from petastore.storage.footers.footer_statistics import footer_statistics
from petastore.storage.row_groups.asked_columns import Part
from petastore.verification.report import Problem

__all__ = ["CheckedRowGroup", "RowGroupCheck"]

_PART_BYTES = 8 * 1024 * 1024
"""Maximum stored or decoded bytes of one column that a thread has in memory at a time."""

_FILES = 32
"""Number of files whose statistics are cached."""

_PART_ROWS = 64 * 1024
"""Maximum rows of one column that a thread has in memory at a time.

This limits text, which becomes Python objects. Repeated text has few bytes in its dictionary, so `_PART_BYTES` alone
does not limit it.
"""


@dataclasses.dataclass(frozen=True, slots=True)
class CheckedRowGroup:
    """Result of checking one row group."""

    problems: list[Problem]
    rows: int
    cells: int


class RowGroupCheck:
    """Checker of the row groups of one dataset. Thread-safe.

    Args:
        dataset: The dataset.
        fields: Fields that the files store.
    """

    def __init__(self, dataset: Dataset, fields: Sequence[UnischemaField]) -> None:
        self.dataset, self.fields = dataset, tuple(fields)
        self.is_cancelled = False
        """Whether checks in all threads stop after the rows that they are reading."""
        # Statistics are cached by file: those of all its row groups are parsed together, but needed one by one.
        self._statistics = functools.lru_cache(maxsize=_FILES)(functools.partial(footer_statistics, fields=self.fields))

    def check(self, group: int) -> CheckedRowGroup:
        """Read and check a row group.

        Args:
            group: Number of the row group in the dataset.

        Raises:
            StorageError: The file cannot be read.
        """
        file, ordinal = self.dataset.inventory.place_of(group)
        rows = int(self.dataset.inventory.rows[group])
        problems: list[Problem] = []
        try:
            footer = self.dataset.footers.get(self.dataset.location, file)
            statistics = self._statistics(footer)
            left = list(self.fields)
            while left and not self.is_cancelled:
                left = self._check_columns(footer, ordinal, rows, left, statistics, problems)
        except FileMissingError as problem:
            problems.append(Problem("missing_file", str(problem)))
        except DatasetChangedError as problem:
            problems.append(Problem("changed_file", str(problem)))
        except MetadataError as problem:
            problems.append(Problem("footer", str(problem)))
        placed = [dataclasses.replace(one, file=file.path, row_group=ordinal) for one in problems]
        return CheckedRowGroup(placed, rows, rows * len(self.fields))

    def _check_columns(
        self,
        footer: Footer,
        ordinal: int,
        rows: int,
        fields: Sequence[UnischemaField],
        statistics: dict[str, ColumnStatistics],
        problems: list[Problem],
    ) -> list[UnischemaField]:
        """Check columns of a row group, up to the first one that cannot be read.

        Args:
            footer: Footer of the file.
            ordinal: Number of the row group in the file.
            rows: Rows of the row group.
            fields: Fields to check, in this order.
            statistics: Statistics of each column, by name.
            problems: List to which the problems found are appended.

        Returns:
            Fields that must still be checked, without the one that cannot be read.
        """
        parts = [Part((field.name,), _rows_at_once(footer, ordinal, rows, field)) for field in fields]
        tables = at_least(self.dataset.reading()(footer.file, ordinal, parts), rows)
        left = list(fields)
        try:
            while left:
                of_column = ColumnCheck(left[0], statistics[left[0].name], ordinal)
                while of_column.add(next(tables)) < rows:
                    if self.is_cancelled:
                        return []
                problems.extend(of_column.finish())
                del left[0]
        except DecodeError as problem:
            damaged = [field for field in left if field.name == problem.column] or left[:1]
            problems.append(Problem("page", problem.problem, column=damaged[0].name, row=problem.row))
            return [field for field in left if field not in damaged]
        return left


class ColumnCheck:
    """Checker of the cells of one column chunk, which are added in parts.

    Args:
        field: Field of the column.
        statistics: Statistics of the column in all row groups of the file.
        ordinal: Number of the row group in the file.
    """

    def __init__(self, field: UnischemaField, statistics: ColumnStatistics, ordinal: int) -> None:
        self._field, self._codec = field, codec_of(field)
        self._bounds = Bounds.of(statistics, ordinal) if _is_comparable(field) else Bounds(None, None)
        self._stated_nulls = int(statistics.nulls[ordinal])
        self._rows = self._nulls = self._bad = 0
        self._first_bad: Problem | None = None
        self._outside: Problem | None = None

    def add(self, table: Any) -> int:
        """Check the next rows.

        Returns:
            Number of rows checked so far.
        """
        cells = only_chunk(table.column(0))
        self._nulls += cells.null_count
        at = self._rows
        for piece in self._pieces(cells):
            self._decode(piece, at)
            at += len(piece)
        if self._outside is None and self._bounds.are_known:
            self._compare(cells)
        self._rows += len(cells)
        return self._rows

    def finish(self) -> Iterator[Problem]:
        """Yield the problems of the column chunk."""
        name = self._field.name
        if self._first_bad is not None:
            yield dataclasses.replace(self._first_bad, count=self._bad)
        if self._outside is not None:
            yield self._outside
        if self._stated_nulls not in (-1, self._nulls):
            message = f"the footer states {self._stated_nulls:,} nulls, but {self._nulls:,} were read"
            yield Problem("null_count", message, column=name)

    def _pieces(self, cells: Any) -> Iterator[Any]:
        """Yield the cells in slices, to limit the decoded size of a slice.

        If the codec cannot compute sizes, yield all cells as a single slice.
        """
        try:
            sizes = decoded_sizes(cells, self._field, self._codec)
        except DecodeError:
            sizes = None
        if sizes is None:
            yield cells
            return
        for first, stop in row_ranges(sizes, _PART_BYTES, _PART_ROWS):
            yield cells.slice(first, stop - first)

    def _decode(self, cells: Any, at: int) -> None:
        """Decode cells; count the cells that cannot be decoded, and remember the first of them.

        Args:
            cells: Stored cells.
            at: Row of the first cell in the row group.
        """
        messages: dict[int, str] = {}

        def attempt(first: int, stop: int) -> None:
            try:
                part = cells.slice(first, stop - first)
                decode_cells(part, self._field, self._codec, max_cell_bytes=DEFAULT_MAX_CELL_BYTES)
            except DecodeError as problem:
                messages[first + (problem.row or 0)] = problem.problem
                raise

        bad = failing_rows(attempt, len(cells))
        self._bad += len(bad)
        if bad and self._first_bad is None:
            self._first_bad = Problem("cell", messages[min(bad)], column=self._field.name, row=at + min(bad))

    def _compare(self, cells: Any) -> None:
        try:
            domain = domain_values(cells, self._field)
        except DecodeError:
            return  # already reported as a bad cell
        try:
            self._bounds.check(domain, flags_of(cells.is_null()))
        except DecodeError as problem:
            row = None if problem.row is None else self._rows + problem.row
            self._outside = Problem("bounds", problem.problem, column=self._field.name, row=row)


def _is_comparable(field: UnischemaField) -> bool:
    return field.is_scalar and (field.codec is None or field.codec.codec_id == "scalar")


def _rows_at_once(footer: Footer, ordinal: int, rows: int, field: UnischemaField) -> int | None:
    """Return the number of rows to read at a time; None for all.

    Sizes are parsed from the footer's bytes, because pyarrow crashes for some damaged column chunk metadata.
    """
    try:
        chunks = [footer.chunk(ordinal, leaf) for leaf in footer.leaves.get(field.name, ())]
    except DecodeError:
        return None  # reading the row group raises the same error
    stored = sum(max(chunk.decoded_bytes, chunk.copied_bytes or 0) for chunk in chunks)
    size = max(stored, rows * (field.decoded_bytes or 0))
    most = min(int(rows_of_part(size, rows, _PART_BYTES)), _PART_ROWS)
    return None if most >= rows else most
