"""Why a row group could not be read: the storage refused, the file is another one by now, or a page is damaged."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import pyarrow as pa

from petastore.errors import DecodeError, PetastoreError
from petastore.inventory import DataFile
from petastore.storage.files.location import Location
from petastore.storage.footers.footers import Footer, check_unchanged, read_footer
from petastore.storage.requests.failure_kinds import kind_of
from petastore.storage.requests.failures import failure, raise_alone
from petastore.storage.row_groups.open_files import OpenFiles

__all__ = ["explained"]


def explained(
    problem: Exception, location: Location, file: DataFile, ordinal: int, columns: Sequence[str], footer: Footer
) -> Exception:
    """What a failed read means: the storage refused, the file was rewritten meanwhile, or a page is damaged."""
    if isinstance(problem, PetastoreError):
        return problem
    if _is_of_storage(problem):
        return failure(problem, location, "read", file.path)
    check_unchanged(read_footer(location, file.path).file, footer.file)
    if isinstance(problem, pa.ArrowNotImplementedError):
        # Whatever is done again would take as long and as much memory; columns that are not plain come one by one.
        return DecodeError(
            f"Apache Arrow does not read it: {problem}; leave the column out with schema_fields",
            column=columns[0] if len(columns) == 1 else None,
            file=file.path,
            row_group=ordinal,
        )
    column = _first_damaged(location, ordinal, columns, footer)
    if column is None and not location.is_local:
        return failure(problem, location, "read", file.path)  # the second time it gave what it should
    return DecodeError(f"the data is damaged: {problem}", column=column, file=file.path, row_group=ordinal)


def _is_of_storage(problem: Exception) -> bool:
    """Whether the storage could not be read; what decoders raise has neither a number nor words of a network."""
    return isinstance(problem, OSError) and kind_of(problem) != ("other", None)


def _first_damaged(location: Location, ordinal: int, columns: Sequence[str], footer: Footer) -> str | None:
    with (
        contextlib.closing(OpenFiles(most_idle=0)) as files,
        files.reading(location, footer, ordinal, (tuple(columns),)) as reading,
    ):
        for name in columns:
            leaves = list(footer.leaves[name])
            try:
                # Arrow takes memory for what a header says, before it sees that there is less: headers come first.
                footer.check_chunks([ordinal], leaves)
                reading.check_pages_before(leaves)
                reading.check_pages_after(leaves)
                reading.reader.read_row_group(ordinal, column_indices=leaves, use_threads=False)
            except (pa.ArrowException, OSError, DecodeError) as problem:
                if _is_of_storage(problem):
                    raise_alone(failure(problem, location, "read", footer.file.path))
                return name
    return None
