"""What exists: the files and row groups of a dataset, as a frozen value. Pure; made by `petastore.storage`.

Row groups are numbered through the whole dataset, from 0, files sorted by path and row groups in file order. They are
arrays, not objects, so that a million of them are cheap to plan over.
"""

from __future__ import annotations

import bisect
import dataclasses
import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from petastore.errors import InvalidArgumentError
from petastore.once import once

__all__ = ["DataFile", "Inventory"]


@dataclasses.dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file of a dataset."""

    path: str
    """Path relative to the dataset's root, with `/`; never absolute, never with `..`."""

    size: int
    """Bytes of the file."""

    digest: str = ""
    """Hexadecimal digest of the file's footer: with `size`, the version of the file. Copies keep it."""

    partitions: tuple[tuple[str, str | None], ...] = ()
    """Hive partition keys and values of the path, decoded, outermost first; None is Hive's null."""

    etag: str = dataclasses.field(default="", compare=False)
    """What its storage called these very bytes when the footer was read; empty where it had no name for them."""


@dataclasses.dataclass(frozen=True, eq=False)
class Inventory:
    """The files and row groups of one version of a dataset.

    Two inventories are equal when their fingerprints are. The arrays are read-only and share one length, the number of
    row groups.

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
    """Of each row group: index into `files`, ascending."""

    ordinal: NDArray[np.int32]
    """Of each row group: its number inside its file, from 0."""

    rows: NDArray[np.int64]
    """Of each row group: rows; 0 is allowed."""

    stored_bytes: NDArray[np.int64]
    """Of each row group: bytes in the file, compressed."""

    decoded_bytes: NDArray[np.int64]
    """Of each row group: bytes of its pages once decompressed, as the footer says."""

    def __post_init__(self) -> None:
        groups = len(self.rows)
        for name, dtype in _ARRAYS.items():
            array = np.array(getattr(self, name), dtype=dtype)
            if array.shape != (groups,):
                raise InvalidArgumentError(
                    f"Inventory.{name} has shape {array.shape}, but there are {groups:,} row groups"
                )
            if groups and array.min() < 0:
                raise InvalidArgumentError(f"Inventory.{name} holds {array.min()}; it counts from 0")
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        if groups and (self.file[-1] >= len(self.files) or (np.diff(self.file) < 0).any()):
            raise InvalidArgumentError("Inventory.file must ascend and stay below the number of files")

    @classmethod
    def of_rows(cls, rows: ArrayLike, *, bytes_per_row: int = 8) -> Inventory:
        """An inventory by hand: one file with these row groups.

        Args:
            rows: Rows of each row group.
            bytes_per_row: Stored and decoded bytes of a row.
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
        """The inventory of files given one by one.

        Args:
            parts: Of each file: the file, and a dict with `rows`, `stored_bytes` and `decoded_bytes` of its row groups.
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
        """Row groups of all files."""
        return len(self.rows)

    def place_of(self, group: int) -> tuple[DataFile, int]:
        """The file of a row group, and its number there.

        Example:
            >>> file, ordinal = Inventory.of_rows([3, 5]).place_of(1)
            >>> file.path, ordinal
            ('part-00000.parquet', 1)
        """
        return self.files[self.file[group]], int(self.ordinal[group])

    def rows_of(self, path: str) -> NDArray[np.int64] | None:
        """Rows of each row group of a file, shape (row groups of the file,), a view; None where it is not listed.

        Example:
            >>> Inventory.of_rows([3, 5]).rows_of("part-00000.parquet").tolist()
            [3, 5]
        """
        place = bisect.bisect_left(self.files, path, key=lambda file: file.path)
        if place == len(self.files) or self.files[place].path != path:
            return None
        first, stop = np.searchsorted(self.file, [place, place + 1])
        return self.rows[first : first + 1 + int(self.ordinal[first:stop].max(initial=-1))]

    def repeated(self, times: Sequence[int]) -> Inventory:
        """The same files, with the row groups of each as often as told, one time after the other.

        Args:
            times: Of each file, from 1.

        Example:
            >>> Inventory.of_rows([3, 5]).repeated([2]).rows.tolist()
            [3, 5, 3, 5]
        """
        borders = np.searchsorted(self.file, np.arange(len(self.files) + 1))
        groups = [np.tile(np.arange(*borders[file : file + 2]), count) for file, count in enumerate(times)]
        order = np.concatenate(groups) if groups else np.empty(0, dtype=np.int64)
        return dataclasses.replace(self, **{name: getattr(self, name)[order] for name in _ARRAYS})

    @once
    def num_rows(self) -> int:
        """Rows of all row groups."""
        return int(self.rows.sum())

    @once
    def fingerprint(self) -> str:
        """32 hexadecimal digits that stand for this version of the dataset, wherever it lies."""
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


_ARRAYS = {
    "file": np.int32,
    "ordinal": np.int32,
    "rows": np.int64,
    "stored_bytes": np.int64,
    "decoded_bytes": np.int64,
}
