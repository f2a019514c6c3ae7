"""Read and check the Parquet footers of a dataset's files, several at once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NoReturn

from petastore.errors import DatasetNotFoundError, MetadataError
from petastore.inventory import Inventory
from petastore.schema.file_schemas import FileSchemas
from petastore.storage.files.listing import is_called_parquet
from petastore.storage.files.location import Location
from petastore.storage.footers.footer import Footer, FooterParser
from petastore.storage.footers.tails import KeptTails, NoParquetError, Tail, Tails, each_of_files
from petastore.storage.requests.failures import answered
from petastore.storage.requests.retries import read_right

__all__ = [
    "differing_schemas",
    "encoded_footers",
    "footer_if_there",
    "inventory_of",
    "parquet_among",
    "read_footer",
    "read_footers",
    "schemas_of",
]

_SHOWN = 5
_LOOKED_AT = 64


def read_footer(location: Location, path: str, *, has_rows: bool = True) -> Footer:
    """Read and check the footer of one file.

    If a remote footer arrives damaged, it is fetched again once.

    Args:
        location: Location of the dataset.
        path: Path of the file, relative to the root.
        has_rows: Whether the file contains the rows of its footer; the footer of `_common_metadata` may have rows of
            other files.

    Raises:
        FileMissingError: The file does not exist.
        StorageError: The file cannot be read.
        MetadataError: The file is not Parquet, or its footer is damaged; the message has the reason.
    """
    with Tails(location) as tails:
        return _right_footer(path, tails.read, FooterParser(), is_remote=not tails.are_local, has_rows=has_rows)


def _right_footer(
    path: str,
    ask: Callable[[str], Tail],
    parser: FooterParser,
    *,
    is_remote: bool,
    has_rows: bool = True,
    forget: Callable[[], None] | None = None,
) -> Footer:
    """Read and parse the footer of a file; if it is remote and damaged, read it again once."""

    def read() -> Footer:
        footer = parser.parse(path, ask(path))
        if has_rows:
            _ = footer.groups  # computed and cached here, because several threads parse footers in parallel
        return footer

    return read_right(read, read if is_remote else None, refused=MetadataError, forget=forget)


def footer_if_there(location: Location, path: str) -> Footer | None:
    """Read the footer of a metadata file (`_common_metadata`); None if it is missing.

    Raises:
        StorageError: The file cannot be read, or its existence is unknown.
        MetadataError: The file is not Parquet, or its footer is damaged.
    """
    info = answered(location, lambda: location.filesystem.get_file_info(location.join(path)), "look at", path)
    if not info.is_file:
        return None
    try:
        return read_footer(location, path, has_rows=False)
    except MetadataError as problem:
        raise MetadataError(
            f"{problem}. If another program than petastore or Petastorm wrote {path} of {location.url}, delete that "
            "file; else write the dataset's metadata again with `petastore generate-metadata`"
        ) from problem


def read_footers(location: Location, paths: Iterable[str], kept: KeptTails | None = None) -> list[Footer]:
    """Read the footers of many files with up to 16 threads.

    The result is in the order of `paths`. A damaged remote footer is fetched again once.

    Args:
        location: Location of the dataset.
        paths: Paths of the files, relative to the root.
        kept: Disk cache of file tails; None reads all of them from storage.

    Raises:
        StorageError: As in `read_footer`, for one failing file; files that are not Parquet are named together.
        DatasetNotFoundError: None of the files is Parquet, by name or content, and the caller did not pass any of them.
    """
    wanted, parser = list(paths), FooterParser()
    with Tails(location) as tails:

        def read(path: str) -> Tail:
            return tails.read(path) if kept is None else kept.tail(path, functools.partial(tails.read, path))

        def footer_or_problem(path: str) -> Footer | MetadataError:
            forget = None if kept is None else functools.partial(kept.forget, path)
            try:
                return _right_footer(path, read, parser, is_remote=not tails.are_local, forget=forget)
            except MetadataError as problem:
                return problem

        found = each_of_files(location, footer_or_problem, wanted)
    footers = [one for one in found if isinstance(one, Footer)]
    if len(footers) < len(found):
        _refuse(location, dict(zip(wanted, found, strict=True)), kept)
    return footers


def parquet_among(location: Location, paths: Sequence[str]) -> list[str]:
    """Return the paths of Parquet files, in order, by name or by their last bytes.

    At most 64 files with other names are read. The result is used for warnings about unlisted Parquet files, which
    should not name, for example, a README.
    """
    others = [path for path in paths if not is_called_parquet(path)]
    looked_at = others[:: -(-len(others) // _LOOKED_AT) or 1]
    with Tails(location) as tails:
        ends = each_of_files(location, tails.is_parquet, looked_at)
        parquet = {path for path, is_one in zip(looked_at, ends, strict=True) if is_one}
    return [path for path in paths if path in parquet or is_called_parquet(path)]


def _refuse(location: Location, found: Mapping[str, Footer | MetadataError], kept: KeptTails | None) -> NoReturn:
    """Raise one error for all files that are not Parquet; without such files, the first error."""
    strangers = {path: one for path, one in found.items() if isinstance(one, NoParquetError)}
    if not strangers:
        if kept is not None:
            kept.forget(*found)
        raise next(one for one in found.values() if isinstance(one, MetadataError))
    first, names = next(iter(strangers.values())), list(strangers)
    if len(found) == 1 and location.paths is not None:
        raise MetadataError(f"{first}. Pass Parquet files, or a directory of them") from None
    shown = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    named = set(location.paths or ()) - location.matched
    if len(names) == len(found) and named.isdisjoint(names) and not any(is_called_parquet(name) for name in names):
        raise DatasetNotFoundError(
            f"{location.url} must have at least one Parquet file, got only {shown}. Correct the URL"
        )
    raise MetadataError(
        f"{location.url}: {len(names):,} of its {len(found):,} files "
        f"{'is not a Parquet file' if len(names) == 1 else 'are not Parquet files'}: {shown}. Move them away, give "
        "them names that begin with _ or . or end in .crc, or read a pattern such as directory/*.parquet. The "
        f"first: {first}"
    )


def inventory_of(footers: Iterable[Footer]) -> Inventory:
    """Return the inventory (files, row groups, sizes) of the files with these footers.

    Raises:
        MetadataError: Counts are negative or do not add up.
    """
    return Inventory.concatenate([(footer.file, footer.groups) for footer in footers])


def schemas_of(footers: Sequence[Footer]) -> FileSchemas:
    """Return the Arrow schemas of files, without columns unreadable in some file."""
    unreadable = {name for footer in footers for name in footer.unreadable}
    return FileSchemas.of(((footer.file.path, footer.arrow_schema) for footer in footers), without=unreadable)


def differing_schemas(footers: Sequence[Footer]) -> FileSchemas | None:
    """Return the Arrow schemas of files for the manifest; None if all are equal."""
    schemas = schemas_of(footers) if footers else None
    return None if schemas is None or schemas.are_equal else schemas


def encoded_footers(footers: Iterable[Footer]) -> dict[str, bytes]:
    """Return a dict from path to the footer bytes, as stored in the file."""
    return {footer.file.path: footer.encoded for footer in footers}
