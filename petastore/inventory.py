"""Inventory: the files and row groups of a dataset, as an immutable object.

`petastore.storage` creates inventories from a manifest or from the footers of Parquet files. Row groups are numbered
from 0 across the whole dataset: files sorted by path, row groups in file order. The sizes of all row groups are NumPy
arrays, so that planning is fast even with a million row groups. `ReadUnit` is one row group, or a part of it, to read.
"""

from __future__ import annotations

import bisect
import dataclasses
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from petastore.errors import InvalidArgumentError
from petastore.lazy import once

__all__ = ["DataFile", "Inventory", "ReadUnit"]

RowPlace: TypeAlias = tuple[str, int, int]
"""Place of a row: path of its file, row group in the file, row in the row group.

The path is relative to the dataset. Row groups and rows are numbered from 0."""


@dataclasses.dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file of a dataset."""

    path: str
    """Path relative to the dataset's root, with `/`; never absolute, never with `..`."""

    size: int
    """Size of the file in bytes."""

    digest: str = ""
    """Hexadecimal digest of the file's footer; empty if unknown.

    With `size`, it identifies the version of the file. Copies of a file have the same digest."""

    partitions: tuple[tuple[str, str | None], ...] = ()
    """Hive partition keys and their decoded values, from the path, outermost first.

    The value None stands for Hive's null."""

    etag: str = dataclasses.field(default="", compare=False)
    """ETag or version id of the file in its object store; empty if there is none."""


@dataclasses.dataclass(frozen=True, eq=False)
class Inventory:
    """The files and row groups of one version of a dataset.

    Two inventories are equal if their fingerprints are equal. The arrays are read-only and have one entry per row
    group.

    Example:
        >>> inventory = Inventory.of_rows([3, 5, 0, 7])
        >>> inventory
        Inventory(1 file, 4 row groups, 15 rows)
        >>> inventory.num_row_groups, inventory.num_rows
        (4, 15)
    """

    files: tuple[DataFile, ...]
    """Files, sorted by path."""

    file: NDArray[np.int32]
    """Index into `files` of each row group's file, ascending."""

    ordinal: NDArray[np.int32]
    """Number of each row group within its file, from 0."""

    rows: NDArray[np.int64]
    """Number of rows of each row group; may be 0."""

    stored_bytes: NDArray[np.int64]
    """Compressed bytes of each row group in its file."""

    decoded_bytes: NDArray[np.int64]
    """Decompressed bytes of each row group's pages, from the footer."""

    def __post_init__(self) -> None:
        groups = len(self.rows)
        for name, dtype in _ARRAYS.items():
            array = np.array(getattr(self, name), dtype=dtype)
            if array.shape != (groups,):
                raise InvalidArgumentError(
                    f"Inventory.{name} must have one entry per row group ({groups:,}), got shape {array.shape}"
                )
            if groups and array.min() < 0:
                raise InvalidArgumentError(f"Inventory.{name} must be at least 0, got {array.min()}")
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        if groups and (self.file[-1] >= len(self.files) or (np.diff(self.file) < 0).any()):
            raise InvalidArgumentError(
                f"Inventory.file must ascend and stay below {len(self.files)}, the number of files, got "
                f"{self.file!r:.100}"
            )

    @classmethod
    def of_rows(cls, rows: ArrayLike, *, bytes_per_row: int = 8) -> Inventory:
        """Return an inventory of one file with row groups of given sizes, for tests.

        Args:
            rows: Rows of each row group.
            bytes_per_row: Stored and decoded bytes per row.
        """
        counts = np.asarray(rows, dtype=np.int64)
        return cls(
            files=(DataFile("part-00000.parquet", size=int(counts.sum()) * bytes_per_row),),
            file=np.zeros(len(counts), dtype=np.int32),
            ordinal=np.arange(len(counts), dtype=np.int32),
            rows=counts,
            stored_bytes=counts * bytes_per_row,
            decoded_bytes=counts * bytes_per_row,
        )

    @classmethod
    def concatenate(cls, parts: Sequence[tuple[DataFile, dict[str, Any]]]) -> Inventory:
        """Return the inventory of several files, which are sorted by path.

        Args:
            parts: For each file: the file, and a dict with `rows`, `stored_bytes` and `decoded_bytes` of its row
                groups.
        """
        ordered = sorted(parts, key=lambda part: part[0].path)
        counts = [len(groups["rows"]) for _, groups in ordered]

        def joined(name: str) -> NDArray[np.int64]:
            arrays = [np.asarray(groups[name], dtype=np.int64) for _, groups in ordered]
            return np.concatenate(arrays) if arrays else np.empty(0, dtype=np.int64)

        return cls(
            files=tuple(file for file, _ in ordered),
            file=np.repeat(np.arange(len(ordered), dtype=np.int32), counts),
            ordinal=np.arange(sum(counts)) - np.repeat(np.cumsum([0, *counts])[:-1], counts),
            rows=joined("rows"),
            stored_bytes=joined("stored_bytes"),
            decoded_bytes=joined("decoded_bytes"),
        )

    @property
    def num_row_groups(self) -> int:
        """Number of row groups."""
        return len(self.rows)

    def place_of(self, group: int) -> tuple[DataFile, int]:
        """Return the file of a row group, and the row group's number in this file.

        Example:
            >>> file, ordinal = Inventory.of_rows([3, 5]).place_of(1)
            >>> file.path, ordinal
            ('part-00000.parquet', 1)
        """
        return self.files[self.file[group]], int(self.ordinal[group])

    def places_of(self, groups: NDArray[Any]) -> tuple[NDArray[np.object_], NDArray[np.int32]]:
        """Return the file path and the number in the file of several row groups.

        Both arrays have shape (n,).

        Args:
            groups: Numbers of row groups, which may repeat, shape (n,).

        Example:
            >>> [array.tolist() for array in Inventory.of_rows([3, 5]).places_of(np.array([1, 0]))]
            [['part-00000.parquet', 'part-00000.parquet'], [1, 0]]
        """
        files, numbers = np.unique(self.file[groups], return_inverse=True)
        paths = np.array([self.files[file].path for file in files.tolist()], object)
        return paths[numbers], self.ordinal[groups]

    def find_rows(
        self, places: Iterable[RowPlace], *, name: str, urls: Sequence[str] = ()
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Find rows that are given by file path, row group in the file, and row.

        The result numbers row groups across the dataset, unlike `places_of`. If the inventory lists a row group several
        times (`repeated`), the result contains its rows as many times.

        Args:
            places: Places of rows, of length n.
            name: Name of the parameter, for messages.
            urls: URL of each file's dataset; places may then also name a file by this URL and its path.

        Returns:
            Three arrays of equal length: index into `places`, ascending; row group; and row in the row group.

        Raises:
            InvalidArgumentError: A place is not `(file, row group, row)`, or the dataset does not have it.

        Example:
            >>> place = ("part-00000.parquet", 1, 4)
            >>> [array.tolist() for array in Inventory.of_rows([3, 5]).find_rows([place], name="rows")]
            [[0], [1], [4]]
        """
        checked = check_places(places, name=name)
        of_files: dict[str, list[int]] = {}
        for number, (path, _, _) in enumerate(checked):
            of_files.setdefault(path, []).append(number)
        asked = np.array([place[1:] for place in checked], dtype=np.int64).reshape(-1, 2)
        parts = [np.empty((2, 0), dtype=np.int64)]
        for number, file in enumerate(self.files):
            named = of_files.get(file.path, [])
            if urls:
                named = named + of_files.get(f"{urls[number]}/{file.path}", [])
            if named:
                first, stop = self._borders[number : number + 2].tolist()
                ordinals, which = self.ordinal[first:stop], np.array(named)
                by_ordinal = np.argsort(ordinals, kind="stable")
                low, high = (np.searchsorted(ordinals[by_ordinal], asked[which, 0], side) for side in ("left", "right"))
                times = high - low
                within = np.repeat(low - (np.cumsum(times) - times), times) + np.arange(times.sum())
                parts.append(np.stack([np.repeat(which, times), first + by_ordinal[within]]))
        index, groups = np.concatenate(parts, axis=1)
        exists = asked[index, 1] < self.rows[groups]
        index, groups = index[exists], groups[exists]
        missing = np.setdiff1d(np.arange(len(checked)), index)
        if len(missing):
            raise InvalidArgumentError(
                f"{name} must name rows of the dataset, got {checked[missing[0]]}, which does not exist. Name each "
                f"file by its path relative to the dataset{', with or without the URL of the dataset' if urls else ''}"
            )
        order = np.argsort(index, kind="stable")
        return index[order], groups[order], asked[index[order], 1]

    @once
    def first_rows(self) -> NDArray[np.int64]:
        """Number of each row group's first row in the dataset, from 0; shape (groups,)."""
        return np.cumsum(self.rows) - self.rows

    def rows_of(self, path: str) -> NDArray[np.int64] | None:
        """Return the number of rows of each row group of a file.

        Return None if the inventory does not list the file. The array has shape (row groups of the file,).

        Example:
            >>> Inventory.of_rows([3, 5]).rows_of("part-00000.parquet").tolist()
            [3, 5]
        """
        paths = self._paths
        place = bisect.bisect_left(paths, path)
        if place == len(paths) or paths[place] != path:
            return None
        first, stop = self._borders[place : place + 2].tolist()
        # If the inventory lists the row groups of a file several times (`repeated`), return only the first repetition.
        return self.rows[first : first + (int(self.ordinal[stop - 1]) + 1 if stop > first else 0)]

    @once
    def _paths(self) -> list[str]:
        return [file.path for file in self.files]

    @once
    def _borders(self) -> NDArray[np.int64]:
        """Number of the first row group of each file, then the number of all row groups.

        Shape (files + 1,).
        """
        return np.searchsorted(self.file, np.arange(len(self.files) + 1))

    def repeated(self, times: Sequence[int]) -> Inventory:
        """Return an inventory that lists the row groups of each file several times.

        Args:
            times: How many times each file's row groups are listed, one number per file, at least 1.

        Example:
            >>> Inventory.of_rows([3, 5]).repeated([2]).rows.tolist()
            [3, 5, 3, 5]
        """
        groups = [np.tile(np.arange(*self._borders[file : file + 2]), count) for file, count in enumerate(times)]
        order = np.concatenate(groups) if groups else np.empty(0, dtype=np.int64)
        return dataclasses.replace(self, **{name: getattr(self, name)[order] for name in _ARRAYS})

    @once
    def num_rows(self) -> int:
        """Total number of rows of all row groups."""
        return int(self.rows.sum())

    @once
    def fingerprint(self) -> str:
        """Fingerprint: 32 hexadecimal digits that identify this version of the dataset.

        Copies of the dataset in other locations have the same fingerprint.
        """
        digest = hashlib.sha256()
        for file in self.files:
            digest.update(repr((file.path, file.size, file.digest)).encode())
        for name, dtype in _ARRAYS.items():
            digest.update(getattr(self, name).astype(np.dtype(dtype).newbyteorder("<")).tobytes())
        return digest.hexdigest()[:32]

    def __eq__(self, other: object) -> bool:
        return self.fingerprint == other.fingerprint if isinstance(other, Inventory) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        files, groups = len(self.files), self.num_row_groups
        return (
            f"Inventory({files:,} file{'' if files == 1 else 's'}, {groups:,} row group{'' if groups == 1 else 's'}, "
            f"{self.num_rows:,} rows)"
        )

    def _repr_html_(self) -> str:
        from petastore.notebook import html_table

        groups = np.bincount(self.file, minlength=len(self.files))
        rows = np.bincount(self.file, self.rows, minlength=len(self.files))
        of_files = (
            [file.path, f"{groups[number]:,}", f"{int(rows[number]):,}", f"{file.size:,}"]
            for number, file in enumerate(self.files)
        )
        return html_table(repr(self), ["file", "row groups", "rows", "bytes"], of_files, count=len(self.files))


def check_places(places: Any, *, name: str) -> tuple[RowPlace, ...]:
    """Check the places of rows, such as the value of `exclude_rows=`.

    Return them as a tuple of `(file, row group, row)`.

    Raises:
        InvalidArgumentError: `places` is not a list of `(file, row group, row)`.

    Example:
        >>> check_places([("part-0.parquet", np.int32(0), 17)], name="exclude_rows")
        (('part-0.parquet', 0, 17),)
    """
    if isinstance(places, (str, bytes)) or not isinstance(places, Iterable):
        raise InvalidArgumentError(
            f"{name} must be a list of (file, row group, row), got {places!r:.100}. Take the three values from errors, "
            "from quarantined rows, or from batches read with provenance=True"
        )
    return tuple(_checked_place(place, name) for place in places)


def _checked_place(place: Any, name: str) -> RowPlace:
    if isinstance(place, (tuple, list)) and len(place) == 3 and isinstance(place[0], str):
        file, *numbers = place
        if all(isinstance(number, (int, np.integer)) and number >= 0 for number in numbers):
            return file, int(numbers[0]), int(numbers[1])
    raise InvalidArgumentError(
        f"{name} must have items (file, row group, row), such as ('part-0.parquet', 3, 17), got {place!r:.100}"
    )


_ARRAYS = {
    "file": np.int32,
    "ordinal": np.int32,
    "rows": np.int64,
    "stored_bytes": np.int64,
    "decoded_bytes": np.int64,
}


@dataclasses.dataclass(frozen=True, slots=True)
class ReadUnit:
    """Unit of work of a reader: the rows and columns to read from one row group.

    Small, picklable, and valid on any host that can access the dataset.
    """

    group: int
    """Number of the row group in the whole dataset."""

    file: DataFile
    """File that contains the row group, in the expected version."""

    row_group: int
    """Number of the row group in the file."""

    rows: tuple[int, int]
    """Half-open range of the rows to read, as row numbers in the row group."""

    columns: tuple[str, ...]
    """Columns to read, in order."""

    @classmethod
    def whole(cls, inventory: Inventory, group: int, columns: Iterable[str]) -> ReadUnit:
        """Return the unit of all rows of a row group, given its number in the dataset.

        Example:
            >>> unit = ReadUnit.whole(Inventory.of_rows([3, 5]), 1, ["id"])
            >>> unit.row_group, unit.rows, unit.columns
            (1, (0, 5), ('id',))
        """
        file, ordinal = inventory.place_of(group)
        return cls(group, file, ordinal, (0, int(inventory.rows[group])), tuple(columns))
