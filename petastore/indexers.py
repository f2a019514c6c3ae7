"""Indexers: which row groups hold a value, worked out from rows. Pure.

`petastore.indexing.build_rowgroup_index` shows an indexer each row group and stores what it found; selectors
(`petastore.selectors`) ask the stored index. Row groups are numbered through the dataset as in its inventory: files
sorted by path, row groups in file order, from 0.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from petastore.errors import InvalidArgumentError
from petastore.expressions.equality import equality_key
from petastore.once import once
from petastore.predicates.column import python_values
from petastore.schema.values import each_value

__all__ = ["FieldNotNullIndexer", "RowGroupIndex", "RowGroupIndexerBase", "SingleFieldIndexer", "Slices"]

_NOT_NULL = "Field is Not Null"


class RowGroupIndexerBase(abc.ABC):
    """What finds the values by which row groups are selected. Derive from it for an index of your own.

    Each row group is shown to a copy of the indexer as it was given; the copies are added up afterwards. What
    `indexed_values` and `get_row_group_indexes` then say is stored, not the indexer.
    """

    @abc.abstractmethod
    def __add__(self, other: Any) -> Any:
        """An indexer with what both have found; may be one of the two."""

    @property
    @abc.abstractmethod
    def index_name(self) -> str:
        """Name of the index, by which selectors ask for it."""

    @property
    @abc.abstractmethod
    def column_names(self) -> list[str]:
        """Names of the fields that it looks at."""

    @property
    @abc.abstractmethod
    def indexed_values(self) -> list[Any]:
        """The values that were found: numbers, text, bytes, decimals or times."""

    @abc.abstractmethod
    def get_row_group_indexes(self, value_key: Any) -> set[int]:
        """The row groups that hold a value."""

    @abc.abstractmethod
    def build_index(self, decoded_rows: list[dict[str, Any]], piece_index: int) -> Any:
        """Takes in the rows of a row group.

        Args:
            decoded_rows: Values by field name, None where one is missing; at least one row.
            piece_index: Number of the row group.
        """


class _FieldIndexer(RowGroupIndexerBase):
    """An indexer of one field."""

    def __init__(self, index_name: str, index_field: str) -> None:
        found = index_field if isinstance(index_field, str) else getattr(index_field, "name", None)
        for name, text in (("index_name", index_name), ("index_field", found)):
            if not isinstance(text, str) or not text:
                raise InvalidArgumentError(f"{name} of {type(self).__name__} is a name, not {text!r:.80}")
        self._name, self._field = index_name, str(found)

    @property
    def index_name(self) -> str:
        """Name of the index."""
        return self._name

    @property
    def column_names(self) -> list[str]:
        """The one field."""
        return [self._field]

    def _checked(self, other: Any) -> Self:
        if type(other) is not type(self) or other.column_names != self.column_names:
            raise InvalidArgumentError(f"{self!r} and {other!r:.80} look at other things, so they cannot be added up")
        return other

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r}, {self._field!r})"


class SingleFieldIndexer(_FieldIndexer):
    """Finds the row groups that hold each value of a field; of arrays, each element. Missing values and NaN are none.

    An index is as large as there are distinct values. For a field by which rows are sorted, or that differs from row to
    row, filters (`petastore.col`) find row groups by the statistics of the files, without any index.

    Args:
        index_name: Name of the index.
        index_field: Name of the field.

    Raises:
        InvalidArgumentError: One of them is no name.

    Example:
        >>> indexer = SingleFieldIndexer("by_label", "label")
        >>> indexer.build_index([{"label": 7}, {"label": None}, {"label": 8}], 0)
        >>> indexer.build_index([{"label": 7}], 1)
        >>> indexer.get_row_group_indexes(7), indexer.get_row_group_indexes(9)
        ({0, 1}, set())
    """

    def __init__(self, index_name: str, index_field: str) -> None:
        super().__init__(index_name, index_field)
        # What each row group holds is kept as it comes, and sorted by value once somebody asks: adding up is cheap.
        self._seen: list[tuple[int, Sequence[Any]]] = []
        self._sorted: dict[Hashable, tuple[Any, list[int]]] | None = None

    def __add__(self, other: Any) -> Self:
        self._seen += self._checked(other)._seen
        self._sorted = None
        return self

    @property
    def indexed_values(self) -> list[Any]:
        """The values that were found."""
        return [value for value, _ in self._found.values()]

    def get_row_group_indexes(self, value_key: Any) -> set[int]:
        """The row groups that hold a value; none for a value that was not found."""
        return set(self._found.get(equality_key(value_key), (None, ()))[1])

    def build_index(self, decoded_rows: list[dict[str, Any]], piece_index: int) -> None:
        """Takes in the rows of a row group."""
        self._take(_distinct(row[self._field] for row in decoded_rows), piece_index)

    def build_index_batch(self, columns: Mapping[str, NDArray[Any]], piece_index: int) -> None:
        """Takes in the columns of a row group: arrays, masked or with None where values are missing."""
        column = columns[self._field]
        if column.dtype == np.dtype(object) or isinstance(column, np.ma.MaskedArray):
            self._take(_distinct(each_value(column)), piece_index)
        else:
            self._take(python_values(np.unique(column)), piece_index)

    def _take(self, values: Sequence[Any] | NDArray[Any], piece_index: int) -> None:
        self._seen.append((piece_index, list(values)))
        self._sorted = None

    @property
    def _found(self) -> dict[Hashable, tuple[Any, list[int]]]:
        """Of each value: how it was first written, and the row groups that hold it."""
        if self._sorted is None:
            found: dict[Hashable, tuple[Any, list[int]]] = {}
            for group, values in self._seen:
                for value in values:
                    key = equality_key(value)
                    if key in found:
                        found[key][1].append(group)
                    elif key == key:  # not so for NaN, which nobody finds
                        found[key] = value, [group]
            self._sorted = found
        return self._sorted


def _distinct(values: Iterable[Any]) -> list[Any]:
    """The values that there are, of arrays their elements, each once."""
    return list({equality_key(value): value for value in _elements(values) if value is not None}.values())


def _elements(values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        if isinstance(value, (np.ndarray, list, tuple)):
            yield from np.asarray(value).reshape(-1)
        else:
            yield value


class FieldNotNullIndexer(_FieldIndexer):
    """Finds the row groups in which a field has a value at all; a selector gets them whatever value it asks for.

    Args:
        index_name: Name of the index.
        index_field: Name of the field.

    Raises:
        InvalidArgumentError: One of them is no name.

    Example:
        >>> indexer = FieldNotNullIndexer("has_title", "title")
        >>> indexer.build_index([{"title": None}], 0)
        >>> indexer.build_index([{"title": None}, {"title": "a"}], 1)
        >>> indexer.get_row_group_indexes()
        {1}
    """

    def __init__(self, index_name: str, index_field: str) -> None:
        super().__init__(index_name, index_field)
        self._found: set[int] = set()

    def __add__(self, other: Any) -> Self:
        self._found |= self._checked(other)._found
        return self

    @property
    def indexed_values(self) -> list[Any]:
        """A text that stands for all values."""
        return [_NOT_NULL]

    def get_row_group_indexes(self, value_key: Any = None) -> set[int]:  # noqa: ARG002 - all values are one
        """The row groups in which the field has a value."""
        return set(self._found)

    def build_index(self, decoded_rows: list[dict[str, Any]], piece_index: int) -> None:
        """Takes in the rows of a row group."""
        if any(row[self._field] is not None for row in decoded_rows):
            self._found.add(piece_index)

    def build_index_batch(self, columns: Mapping[str, NDArray[Any]], piece_index: int) -> None:
        """Takes in the columns of a row group: arrays, masked or with None where values are missing."""
        column = columns[self._field]
        is_full = column.dtype != np.dtype(object) and not isinstance(column, np.ma.MaskedArray)
        if is_full or any(value is not None for value in each_value(column)):
            self._found.add(piece_index)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Slices(Sequence[Sequence[int]]):
    """Many short lists of numbers in two arrays, which takes a tenth of the memory and no time to make."""

    numbers: NDArray[np.int32]
    """The numbers of all lists, shape (n,)."""

    offsets: NDArray[np.int32]
    """Where each list begins in `numbers`, and where the last one ends, shape (lists + 1,)."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, place: Any) -> Any:
        """One list, given its place from 0."""
        found: list[int] = self.numbers[self.offsets[place] : self.offsets[place + 1]].tolist()
        return found


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class RowGroupIndex:
    """An index as it was stored. Frozen and thread-safe."""

    index_name: str
    """Name of the index."""

    column_names: tuple[str, ...]
    """Names of the fields that it is about."""

    values: Sequence[Any] | None
    """The values that were found, each once; None where all values are one, as for `FieldNotNullIndexer`."""

    row_groups: Sequence[Sequence[int]]
    """Of each value, or of all values as one: numbers of the row groups that hold it."""

    @property
    def indexed_values(self) -> list[Any]:
        """The values that were found."""
        return [_NOT_NULL] if self.values is None else list(self.values)

    @once
    def _places(self) -> dict[Hashable, int]:
        return {equality_key(value): place for place, value in enumerate(self.values or ())}

    def get_row_group_indexes(self, value_key: Any = None) -> set[int]:
        """Numbers of the row groups that hold a value, a new set; none for a value that was not found.

        Raises:
            InvalidArgumentError: Such a value cannot be looked up.
        """
        if self.values is None:
            return {group for groups in self.row_groups for group in groups}
        try:
            place = self._places.get(equality_key(value_key))
        except TypeError as problem:
            raise InvalidArgumentError(
                f"the index {self.index_name!r} cannot look up {value_key!r:.80}: {problem}"
            ) from None
        return set() if place is None else set(self.row_groups[place])

    def __repr__(self) -> str:
        count = "" if self.values is None else f", {len(self.values):,} value{'' if len(self.values) == 1 else 's'}"
        return f"RowGroupIndex({self.index_name!r} of {', '.join(map(repr, self.column_names))}{count})"
