"""Read and check the Parquet footers of a dataset's files, several at once."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

from petastore.errors import DatasetNotFoundError, MetadataError
from petastore.inventory import Inventory
from petastore.schema.file_schemas import FileSchemas
from petastore.storage.files.listing import is_called_parquet
from petastore.storage.files.location import Location
from petastore.storage.footers.footer import Footer, FooterParser
from petastore.storage.footers.tails import MAX_FOOTER_BYTES, KeptTails, NoParquetError, Tail, Tails, each_of_files
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


def read_footer(location: Location, path: str, *, max_bytes: int = MAX_FOOTER_BYTES, has_rows: bool = True) -> Footer:
    """Read and check the footer of one file.

    If a remote footer arrives damaged, it is fetched again once.

    Args:
        location: Location of the dataset.
        path: Path of the file, relative to the root.
        max_bytes: Maximum size of the footer.
        has_rows: Whether the file contains the rows of its footer; the footer of `_common_metadata` may have rows of
            other files.

    Raises:
        FileMissingError: The file does not exist.
        StorageError: The file cannot be read.
        MetadataError: The file is not Parquet, or its footer is damaged; the message has the reason.
    """
    with Tails(location) as tails:
        ends = _Ends(tails, functools.partial(tails.read, max_bytes=max_bytes), has_rows=has_rows)
        return ends.parsed(path, ends.read(path))


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


@dataclasses.dataclass(frozen=True, slots=True)
class _Ends:
    """Reader of footers at the ends of files; fetches a damaged footer a second time."""

    tails: Tails
    ask: Callable[[str], Tail]
    kept: KeptTails | None = None
    has_rows: bool = True
    parser: FooterParser = dataclasses.field(default_factory=FooterParser)

    def read(self, path: str) -> Tail:
        """Read the end of a file, which contains the footer.

        Raises:
            MetadataError: The file is not Parquet, also after a second fetch.
            StorageError: The file cannot be read.
        """
        read = functools.partial(self.ask, path)
        return read_right(read, None if self.tails.are_local else read, refused=MetadataError)

    def parsed(self, path: str, tail: Tail) -> Footer:
        """Parse the footer in a file's tail; if it is damaged, fetch the tail again once.

        Raises:
            MetadataError: The footer is damaged, also after a second fetch.
            StorageError: The file cannot be read.
        """
        return read_right(
            lambda: self._parse(path, tail),
            None if self.tails.are_local else lambda: self._parse(path, self.ask(path)),
            refused=MetadataError,
            forget=None if self.kept is None else functools.partial(self.kept.forget, path),
        )

    def _parse(self, path: str, tail: Tail) -> Footer:
        footer = self.parser.parse(path, tail)
        if self.has_rows:
            _ = footer.groups  # computed and cached here, because several threads parse footers in parallel
        return footer


def read_footers(location: Location, paths: Iterable[str], kept: KeptTails | None = None) -> list[Footer]:
    """Read the footers of many files with up to 16 threads.

    The result is in the order of `paths`. A damaged remote footer is fetched again once.

    Args:
        location: Location of the dataset.
        paths: Paths of the files, relative to the root.
        kept: Disk cache of file tails; None reads all of them from storage.

    Raises:
        StorageError: As in `read_footer`, for the first failing file; files that are not Parquet are named together.
        DatasetNotFoundError: None of the files is Parquet, by name or content, and the caller did not pass any of them.
    """
    wanted = list(paths)
    with Tails(location) as tails:

        def read(path: str) -> Tail:
            return tails.read(path) if kept is None else kept.tail(path, functools.partial(tails.read, path))

        ends = _Ends(tails, read, kept)
        told = each_of_files(location, functools.partial(_tail_or_stranger, ends.read), wanted)
        strangers = [one for one in told if isinstance(one, NoParquetError)]
        if strangers:
            _refuse_strangers(location, wanted, strangers)
        try:
            tails_in_order = [one for one in told if not isinstance(one, NoParquetError)]
            parse = lambda number: ends.parsed(wanted[number], tails_in_order[number])  # noqa: E731
            return each_of_files(location, parse, range(len(wanted)))
        except MetadataError:
            if kept is not None:
                kept.forget(*wanted)
            raise


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


def _tail_or_stranger(read: Callable[[str], Tail], path: str) -> Tail | NoParquetError:
    try:
        return read(path)
    except NoParquetError as problem:
        problem.path = path
        return problem


def _refuse_strangers(location: Location, paths: Sequence[str], strangers: Sequence[NoParquetError]) -> NoReturn:
    if len(paths) == 1 and location.paths is not None:
        raise MetadataError(f"{strangers[0]}. Pass Parquet files, or a directory of them") from None
    names = [problem.path for problem in strangers]
    shown = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    named = set(location.paths or ()) - location.matched
    if len(names) == len(paths) and named.isdisjoint(names) and not any(is_called_parquet(name) for name in names):
        raise DatasetNotFoundError(
            f"{location.url} must have at least one Parquet file, got only {shown}. Correct the URL"
        )
    raise MetadataError(
        f"{location.url}: {len(names):,} of its {len(paths):,} files "
        f"{'is not a Parquet file' if len(names) == 1 else 'are not Parquet files'}: {shown}. Move them away, give "
        "them names that begin with _ or . or end in .crc, or read a pattern such as directory/*.parquet. The "
        f"first: {strangers[0]}"
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
