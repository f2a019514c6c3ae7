"""Indexers: map the values of fields to the row groups that contain them. No I/O.

`petastore.indexing.build_rowgroup_index` passes each row group to an indexer and stores the resulting index. Selectors
(`petastore.selectors`) look up values in the index. Row groups are numbered from 0 through the whole dataset: files
sorted by path, and the row groups of a file in file order.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from petastore.errors import InvalidArgumentError
from petastore.expressions.literal import equality_key
from petastore.lazy import once
from petastore.predicates import python_values
from petastore.schema.values import each_value

__all__ = ["FieldNotNullIndexer", "RowGroupIndex", "RowGroupIndexerBase", "SingleFieldIndexer", "Slices"]

_NOT_NULL = "Field is Not Null"


class RowGroupIndexerBase(abc.ABC):
    """Base class of row-group indexers. Derive from it for your own index.

    Each row group is passed to a copy of the indexer, and the copies are merged with `+`. The results of
    `indexed_values` and `get_row_group_indexes` are stored in the dataset; the indexer itself is not.
    """

    @abc.abstractmethod
    def __add__(self, other: Any) -> Any:
        """Return an indexer with the values of both indexers.

        The method may modify one of the two indexers, and return it.
        """

    @property
    @abc.abstractmethod
    def index_name(self) -> str:
        """Name of the index, by which selectors find it."""

    @property
    @abc.abstractmethod
    def column_names(self) -> list[str]:
        """Names of the fields that the indexer needs."""

    @property
    @abc.abstractmethod
    def indexed_values(self) -> list[Any]:
        """The values indexed so far: numbers, text, bytes, decimals or times."""

    @abc.abstractmethod
    def get_row_group_indexes(self, value_key: Any) -> set[int]:
        """Return the row groups that contain a value, by number in the whole dataset."""

    @abc.abstractmethod
    def build_index(self, decoded_rows: list[dict[str, Any]], piece_index: int) -> Any:
        """Add the values of the rows of one row group to the index.

        Args:
            decoded_rows: Dicts of values by field name, None if missing; at least one row.
            piece_index: Number of the row group.
        """


class _FieldIndexer(RowGroupIndexerBase):
    """Base class of indexers of one field."""

    def __init__(self, index_name: str, index_field: str) -> None:
        found = index_field if isinstance(index_field, str) else getattr(index_field, "name", None)
        for name, text in (("index_name", index_name), ("index_field", found)):
            if not isinstance(text, str) or not text:
                raise InvalidArgumentError(
                    f"{name} must be a non-empty str, got {text!r:.80} for {type(self).__name__}"
                )
        self._name, self._field = index_name, str(found)

    @property
    def index_name(self) -> str:
        """Name of the index."""
        return self._name

    @property
    def column_names(self) -> list[str]:
        """Name of the indexed field, as a list."""
        return [self._field]

    def _checked(self, other: Any) -> Self:
        if type(other) is not type(self) or other.column_names != self.column_names:
            raise InvalidArgumentError(
                f"other must be a {type(self).__name__} of field {self._field!r}, got {other!r:.80}"
            )
        return other

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r}, {self._field!r})"


class SingleFieldIndexer(_FieldIndexer):
    """An indexer that maps each value of a field to row groups.

    For an array field, the elements of the arrays are indexed. Missing values and NaN are not indexed. The size of the
    index is proportional to the number of distinct values. If rows are sorted by the field, or if each row has a
    different value, use filters (`petastore.col`) instead: filters skip row groups by statistics, without an index.

    Args:
        index_name: Name of the index.
        index_field: Name of the field.

    Raises:
        InvalidArgumentError: `index_name` or `index_field` is not a name.

    Example:
        >>> indexer = SingleFieldIndexer("by_label", "label")
        >>> indexer.build_index([{"label": 7}, {"label": None}, {"label": 8}], 0)
        >>> indexer.build_index([{"label": 7}], 1)
        >>> indexer.get_row_group_indexes(7), indexer.get_row_group_indexes(9)
        ({0, 1}, set())
    """

    def __init__(self, index_name: str, index_field: str) -> None:
        super().__init__(index_name, index_field)
        # Adding is cheap, because values are only appended. `_found` builds the dict from value to row groups on first
        # access.
        self._seen: list[tuple[int, Sequence[Any]]] = []
        self._sorted: dict[Hashable, tuple[Any, list[int]]] | None = None

    def __add__(self, other: Any) -> Self:
        self._seen += self._checked(other)._seen
        self._sorted = None
        return self

    @property
    def indexed_values(self) -> list[Any]:
        """The distinct values indexed so far."""
        return [value for value, _ in self._found.values()]

    def get_row_group_indexes(self, value_key: Any) -> set[int]:
        """Return the numbers of the row groups that contain a value, as a new set."""
        return set(self._found.get(equality_key(value_key), (None, ()))[1])

    def build_index(self, decoded_rows: list[dict[str, Any]], piece_index: int) -> None:
        """Add the values of the rows of one row group to the index."""
        self._take(_distinct(row[self._field] for row in decoded_rows), piece_index)

    def build_index_batch(self, columns: Mapping[str, NDArray[Any]], piece_index: int) -> None:
        """Add the values of one row group, given as columns, to the index.

        Missing values are masked, or None in object arrays.
        """
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
        """Dict from a hashable key to (value, list of the row groups that contain the value).

        The key is the `equality_key` of the value: equal for values that compare equal, such as 1 and 1.0.
        """
        if self._sorted is None:
            found: dict[Hashable, tuple[Any, list[int]]] = {}
            for group, values in self._seen:
                for value in values:
                    key = equality_key(value)
                    if key in found:
                        found[key][1].append(group)
                    elif key == key:  # false for NaN, which no lookup would find
                        found[key] = value, [group]
            self._sorted = found
        return self._sorted


def _distinct(values: Iterable[Any]) -> list[Any]:
    """Return the distinct values other than None, as a list.

    For arrays and lists, the values are their elements.
    """
    return list({equality_key(value): value for value in _elements(values) if value is not None}.values())


def _elements(values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        if isinstance(value, (np.ndarray, list, tuple)):
            yield from np.asarray(value).reshape(-1)
        else:
            yield value


class FieldNotNullIndexer(_FieldIndexer):
    """An indexer of the row groups in which a field has a value that is not null.

    Args:
        index_name: Name of the index.
        index_field: Name of the field.

    Raises:
        InvalidArgumentError: `index_name` or `index_field` is not a name.

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
        """A list of one constant text, because this index does not distinguish values.

        `get_row_group_indexes` returns the same row groups for every value.
        """
        return [_NOT_NULL]

    def get_row_group_indexes(self, value_key: Any = None) -> set[int]:  # noqa: ARG002 - equal for all values
        """Return a new set with the numbers of the row groups where the field has a value."""
        return set(self._found)

    def build_index(self, decoded_rows: list[dict[str, Any]], piece_index: int) -> None:
        """Add the row group if any of its rows has a value in the field."""
        if any(row[self._field] is not None for row in decoded_rows):
            self._found.add(piece_index)

    def build_index_batch(self, columns: Mapping[str, NDArray[Any]], piece_index: int) -> None:
        """Add the row group, given as columns, if any row has a value in the field.

        Missing values are masked, or None in object arrays.
        """
        column = columns[self._field]
        is_full = column.dtype != np.dtype(object) and not isinstance(column, np.ma.MaskedArray)
        if is_full or any(value is not None for value in each_value(column)):
            self._found.add(piece_index)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Slices(Sequence[Sequence[int]]):
    """Sequence of many short lists of numbers, stored in two arrays.

    The arrays take a tenth of the memory of lists.
    """

    numbers: NDArray[np.int32]
    """The numbers of all lists, shape (n,)."""

    offsets: NDArray[np.int32]
    """Index in `numbers` at which each list begins, and the end of the last list, shape (lists + 1,)."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, place: Any) -> Any:
        """Return the list with this index, from 0."""
        found: list[int] = self.numbers[self.offsets[place] : self.offsets[place + 1]].tolist()
        return found


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class RowGroupIndex:
    """A stored row-group index. Immutable and thread-safe."""

    index_name: str
    """Name of the index."""

    column_names: tuple[str, ...]
    """Names of the indexed fields."""

    values: Sequence[Any] | None
    """Distinct values; None for an index that does not distinguish values.

    `FieldNotNullIndexer` builds such an index.
    """

    row_groups: Sequence[Sequence[int]]
    """For each value, the numbers of the row groups that contain it.

    If the index does not distinguish values, this is a single list of row groups.
    """

    @property
    def indexed_values(self) -> list[Any]:
        """The indexed values; one constant text if the index does not distinguish values."""
        return [_NOT_NULL] if self.values is None else list(self.values)

    @once
    def _places(self) -> dict[Hashable, int]:
        return {equality_key(value): place for place, value in enumerate(self.values or ())}

    def get_row_group_indexes(self, value_key: Any = None) -> set[int]:
        """Return a new set with the numbers of the row groups that contain a value.

        The set is empty if the index does not have the value.

        Raises:
            InvalidArgumentError: The value's type cannot be looked up.
        """
        if self.values is None:
            return {group for groups in self.row_groups for group in groups}
        try:
            place = self._places.get(equality_key(value_key))
        except TypeError as problem:
            raise InvalidArgumentError(
                f"value must be hashable to be looked up in the index {self.index_name!r}, got "
                f"{value_key!r:.80}: {problem}"
            ) from None
        return set() if place is None else set(self.row_groups[place])

    def __repr__(self) -> str:
        count = "" if self.values is None else f", {len(self.values):,} value{'' if len(self.values) == 1 else 's'}"
        return f"RowGroupIndex({self.index_name!r} of {', '.join(map(repr, self.column_names))}{count})"
