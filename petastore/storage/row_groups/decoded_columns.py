"""Columns that a cache keeps decoded: numbers and times, whose cells have one width each.

To decode them again takes longer than to look at an entry of the cache, and it has to be done in every epoch. An entry
is Arrow's memory of some of them (`petastore.storage.ranges.kept_chunks`): to open a file for each column took as long
as all the bytes.
Everything else is kept as it is stored: text and bytes are hardly faster decoded, and pictures would take ten times the
room. `docs/explanation/local-cache.md` has the figures.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from petastore.errors import DecodeError
from petastore.storage.footers.footers import Footer
from petastore.storage.ranges.coalesced import ByteRange
from petastore.storage.ranges.column_chunks import chunk_ranges
from petastore.storage.ranges.kept_chunks import KeptChunks

__all__ = ["Neighbours", "decoded_columns", "kept_chunks"]

_MOST_TIMES = 2
"""So many times the bytes that are stored may decoded ones take, of all such columns of a row group together."""

_MOST_NEIGHBOURS = 8
"""Columns of one entry. With twice as many an epoch takes hardly less, and who asks for all but one column has more
entries."""

_MOST_BYTES = 4 * 1024 * 1024
"""Of an entry of several columns: where one has more, it hardly matters how many files there are."""


class Neighbours(NamedTuple):
    """Columns of a row group that are kept decoded, as one entry where all of them are asked for."""

    columns: tuple[str, ...]
    """One or several, of one type, in the order of the file."""

    kind: Any
    """Their `pyarrow.DataType`."""

    sizes: tuple[int, ...]
    """Bytes that each takes by itself, if the footer is right."""

    size: int
    """Bytes that all of them take as one entry, if the footer is right."""


def decoded_columns(footer: Footer, ordinal: int) -> Sequence[Neighbours]:
    """Which columns of a row group a cache keeps decoded.

    All columns of one width, if they take no more than twice the bytes together; else each that does so by itself.

    Args:
        footer: Of the file.
        ordinal: The row group's number in it, from 0.
    """
    known = footer.kept_decoded.get(ordinal)
    if known is None:
        known = footer.kept_decoded.setdefault(ordinal, _neighbours(footer, ordinal, _chosen(footer, ordinal)))
    return known


def _chosen(footer: Footer, ordinal: int) -> dict[str, int]:
    """Of each column that is kept decoded: its bytes."""
    sizes = _sizes(footer, ordinal)
    decoded, as_stored = (sum(one[column] for one in sizes.values()) for column in (0, 2))
    are_all = decoded <= _MOST_TIMES * as_stored
    return {
        name: size + bits for name, (size, bits, stored) in sizes.items() if are_all or size <= _MOST_TIMES * stored
    }


def _sizes(footer: Footer, ordinal: int) -> dict[str, tuple[int, int, int]]:
    """Of each column that can be kept decoded: bytes of its values, of what says which are missing, and as stored."""
    leaves, group = _of_one_width(footer), footer.metadata.row_group(ordinal)
    try:
        footer.check_chunks([ordinal], leaves.values())
    except DecodeError:
        return {}  # a column that nobody may have asked for: the others are kept as they are stored
    rows, sizes = group.num_rows, dict[str, tuple[int, int, int]]()
    for name, leaf in leaves.items() if rows else ():
        chunk = group.column(leaf)
        if chunk.num_values == rows:
            bits = -(-rows // 8) if (footer.nulls[ordinal].get(leaf) or 0) > 0 else 0
            width = footer.arrow_schema.field(name).type.bit_width
            sizes[name] = rows * width // 8, bits, chunk.total_compressed_size
    return sizes


def _of_one_width(footer: Footer) -> dict[str, int]:
    """Of columns of numbers and times: the leaf. 96-bit times, numbers in text and others do not lie there as such."""
    schema, stored = footer.arrow_schema, footer.columns.stored
    return {
        name: leaves[0]
        for name, leaves in footer.leaves.items()
        if len(leaves) == 1
        and _has_one_width(schema.field(name).type)
        and stored.column(leaves[0]).max_repetition_level == 0
        and leaves[0] not in footer.columns.int96_leaves
    }


def _neighbours(footer: Footer, ordinal: int, sizes: Mapping[str, int]) -> tuple[Neighbours, ...]:
    rows, neighbours = footer.metadata.row_group(ordinal).num_rows, list[Neighbours]()
    of_kind = collections.defaultdict[Any, list[str]](list)
    for name in sizes:
        of_kind[footer.arrow_schema.field(name).type].append(name)
    for kind, names in of_kind.items():
        width = rows * kind.bit_width // 8
        at_once = max(min(_MOST_BYTES // width, _MOST_NEIGHBOURS), 1)
        for first in range(0, len(names), at_once):
            columns = tuple(names[first : first + at_once])
            of_each = tuple(sizes[name] for name in columns)
            neighbours.append(Neighbours(columns, kind, of_each, max(of_each) * len(columns)))
    return tuple(neighbours)


def _has_one_width(kind: Any) -> bool:
    return (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind)) and not (
        pa.types.is_interval(kind)
    )


def kept_chunks(
    footer: Footer, ordinal: int, columns: Mapping[int, str], ranges: Mapping[int, ByteRange]
) -> list[KeptChunks]:
    """What a cache keeps of some column chunks, each once, in their order.

    Neighbours that are kept decoded and have one type are one entry, if all of them are asked for: which ones are
    neighbours, the footer says alone. So a chunk is in two entries at most, by itself and with its neighbours, whatever
    columns are asked for.

    Args:
        footer: Of the file.
        ordinal: The row group's number in it, from 0.
        columns: Of leaf columns: the top-level column that each is of.
        ranges: Of the same that are asked for: where the chunks lie; empty ones are left out.
    """
    rows, times = footer.metadata.row_group(ordinal).num_rows, collections.Counter(ranges.values())
    # Where a writer made one chunk of two that are alike, it is kept as it is stored.
    place_of = {columns[leaf]: place for leaf, place in ranges.items() if times[place] == 1}
    of_place = dict[ByteRange, KeptChunks]()
    for neighbours in decoded_columns(footer, ordinal):
        names = neighbours.columns
        asked = [name for name in names if name in place_of]
        if len(asked) == len(names):
            places = tuple(place_of[name] for name in names)
            of_place |= dict.fromkeys(places, KeptChunks(places, names, neighbours.kind, rows, neighbours.size))
            continue
        within = _within(footer, ordinal, neighbours, rows) if asked else None
        for name in asked:
            size = neighbours.sizes[names.index(name)]
            of_place[place_of[name]] = KeptChunks((place_of[name],), (name,), neighbours.kind, rows, size, within)
    kept = dict[ByteRange, KeptChunks]()
    for leaf, place in ranges.items():
        one = of_place.get(place) or KeptChunks((place,), (columns[leaf],), size=place.length)
        kept.setdefault(one.ranges[0], one)
    return list(kept.values())


def _within(footer: Footer, ordinal: int, neighbours: Neighbours, rows: int) -> KeptChunks | None:
    """The entry of all neighbours, of which only some are asked for; None where the footer tells nonsense of others."""
    leaves = [footer.leaves[name][0] for name in neighbours.columns]
    with contextlib.suppress(DecodeError):
        ranges = chunk_ranges(footer.metadata, ordinal, leaves, footer.file)
        places = tuple(ranges[leaf] for leaf in leaves)
        return KeptChunks(places, neighbours.columns, neighbours.kind, rows, neighbours.size)
    return None
