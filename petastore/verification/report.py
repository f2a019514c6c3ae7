"""Report of `petastore.verify`: the problems of a dataset, and where they are."""

from __future__ import annotations

import dataclasses
from typing import Literal, TypeAlias

__all__ = ["Problem", "VerifyReport"]

ProblemKind: TypeAlias = Literal[
    "manifest",
    "schema",
    "packed_footers",
    "index",
    "missing_file",
    "unlisted_file",
    "changed_file",
    "footer",
    "row_count",
    "page",
    "cell",
    "bounds",
    "null_count",
]


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a dataset, and its place: file, row group, column and row."""

    kind: ProblemKind
    """Kind of the problem:

    - `"manifest"`: the manifest is damaged.
    - `"schema"`: the schema document is damaged, missing, or does not match the files.
    - `"packed_footers"`: `_petastore/footers` is damaged; readers read each file's footer instead.
    - `"index"`: a row-group index is damaged, or was built from other files.
    - `"missing_file"`, `"unlisted_file"`: a file of the manifest is missing; a Parquet file is not in the manifest.
    - `"changed_file"`: size or footer differ from the manifest.
    - `"footer"`: the file is not Parquet, or its footer is damaged.
    - `"row_count"`: row groups have other row counts than in the manifest.
    - `"page"`: a data page is damaged: a wrong checksum, a wrong header, or it cannot be decoded.
    - `"cell"`: a cell cannot be decoded by the codec of its field.
    - `"bounds"`, `"null_count"`: values contradict the minimum, maximum or null count in the footer.
    """

    message: str
    """Description of the problem and its cause, for people."""

    file: str | None = None
    """Path relative to the dataset; None if the problem is not in one file."""

    row_group: int | None = None
    """Number of the row group in the file, from 0."""

    column: str | None = None
    """Name of the column."""

    row: int | None = None
    """Row in the row group, from 0; the first one if there are several."""

    count: int = 1
    """Number of cells with this problem in the column chunk."""


@dataclasses.dataclass(frozen=True, slots=True)
class VerifyReport:
    """Result of `petastore.verify`."""

    url: str
    """URL of the dataset, without credentials."""

    problems: tuple[Problem, ...]
    """Problems of the metadata first, then in the order of files and row groups."""

    files: int
    """Files whose footers were read."""

    row_groups: int
    """Number of row groups that were read; with `sample`, fewer than `row_groups_total`."""

    row_groups_total: int
    """Number of row groups of all readable files."""

    rows: int
    """Rows of the row groups that were read."""

    cells: int
    """Cells that were read, including those of damaged pages."""

    unsupported: dict[str, str]
    """Columns of types that petastore does not read, which were not checked: dict from name to reason."""

    @property
    def is_clean(self) -> bool:
        """Whether no problem was found."""
        return not self.problems
