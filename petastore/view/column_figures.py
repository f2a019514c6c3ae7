"""Figures of row groups and columns.

They come from the inventory, the statistics in footers, and a sample of rows.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.codecs.registry import codec_of
from petastore.dataset import Dataset
from petastore.decoding.decode import decode_cells, decoded_sizes
from petastore.errors import PetastoreError
from petastore.expressions import ColumnStatistics
from petastore.schema.field import UnischemaField
from petastore.storage.footers.footer import Footer
from petastore.storage.footers.footer_statistics import read_statistics
from petastore.view.cells import MOST_CELL_BYTES, bars, time_text
from petastore.view.sample_rows import bytes_per_row, stored_rows

__all__ = ["ColumnSummary", "RowGroupLine", "column_summaries", "row_group_lines", "row_group_map"]

_COMPRESSIONS = ("none", "snappy", "gzip", "lzo", "brotli", "lz4", "zstd", "lz4_raw")

_MOST_FILES = 64
"""Maximum number of files whose footers are read for the statistics of a column."""

_MOST_CHUNKS = 200_000
"""Maximum column chunks of the footers that are parsed for one page; more would take seconds."""

_SAMPLED_GROUPS, _SAMPLED_ROWS = 4, 256
_SAMPLED_BYTES = 4 * 1024 * 1024
"""Maximum decompressed bytes of a column that are sampled from a row group."""

_MOST_NUMBERS = 500_000
"""Approximate maximum of sampled numbers in a histogram; if there are more, only every n-th is used."""

_BINS, _DISTINCT = 24, 12
_MAP_BARS = 120

_LAST_TIME = 2.0**63 - 1024
"""Largest float that converts to the int64 value of a NumPy time."""


@dataclasses.dataclass(frozen=True, slots=True)
class RowGroupLine:
    """Facts about a row group, for a line of the row-group page. Sizes are bytes."""

    number: int
    file: str
    ordinal: int
    rows: int
    stored_bytes: int
    decoded_bytes: int
    compression: str
    minimum: str
    maximum: str
    nulls: str


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnSummary:
    """Null share, bounds and histogram of a column."""

    field: UnischemaField
    nulls: str
    """Text with the share of missing values, and the source of this number."""
    bounds: str
    """Text with minimum and maximum from the Parquet statistics; empty if unknown."""
    chart: str
    """Histogram as SVG; empty without a chart."""
    caption: str
    """Description of the chart, or the reason why it is missing."""


def row_group_map(dataset: Dataset) -> tuple[str, str]:
    """Return two bar charts over all row groups: the rows, and the stored bytes.

    If there are many row groups, several of them share a bar.
    """
    inventory = dataset.inventory
    starts = np.unique(np.arange(_MAP_BARS) * inventory.num_row_groups // _MAP_BARS)
    if not inventory.num_row_groups:
        return bars([]), bars([])
    stops = [*(starts[1:] - 1).tolist(), inventory.num_row_groups - 1]
    names = [f"{first}" if first == last else f"{first}–{last}" for first, last in zip(starts, stops, strict=True)]
    charts = []
    for values, unit in ((inventory.rows, "rows"), (inventory.stored_bytes, "bytes")):
        heights = np.add.reduceat(values, starts)
        charts.append(bars(heights, [f"{name}: {size:,} {unit}" for name, size in zip(names, heights, strict=True)]))
    return charts[0], charts[1]


def row_group_lines(dataset: Dataset, groups: NDArray[np.int64], field: UnischemaField | None) -> list[RowGroupLine]:
    """Return one line of the table for each row group.

    A line has sizes, compression and the statistics of a column. Very large footers are not read.

    Args:
        dataset: The dataset.
        groups: Numbers of row groups.
        field: Column whose statistics and compression are shown; None shows the compression of the first column.

    Raises:
        PetastoreError: A footer cannot be read.
    """
    inventory, lines = dataset.inventory, []
    files = np.unique(inventory.file[groups])
    is_read = int(np.isin(inventory.file, files).sum()) * len(dataset.schema) <= _MOST_CHUNKS
    known = _statistics(dataset, [field], groups).get(field.name) if is_read and field is not None else None
    compressions = _compressions(dataset, groups, field) if is_read else {}
    arrays = (inventory.rows, inventory.stored_bytes, inventory.decoded_bytes)
    for group in groups.tolist():
        file, ordinal = inventory.place_of(group)
        low, high = ("", "") if known is None or field is None else _bounds(known, field, np.array([group]))
        nulls = "" if known is None or known.nulls[group] < 0 else f"{known.nulls[group]:,}"
        rows, stored, decoded = (array[group].item() for array in arrays)
        names = compressions.get((file.path, ordinal), "" if is_read else "not read")
        lines.append(RowGroupLine(group, file.path, ordinal, rows, stored, decoded, names, low, high, nulls))
    return lines


def _compressions(
    dataset: Dataset, groups: NDArray[np.int64], field: UnischemaField | None
) -> dict[tuple[str, int], str]:
    """Return the compression of a column, by file path and row-group ordinal.

    If `field` is None, the column is the first one.
    """
    inventory = dataset.inventory
    wanted: dict[str, list[int]] = {}
    for file, ordinal in map(inventory.place_of, groups.tolist()):
        wanted.setdefault(file.path, []).append(ordinal)

    def of_file(footer: Footer, _: NDArray[np.int32]) -> dict[tuple[str, int], str]:
        path = footer.file.path
        leaves = footer.leaves.get(field.name, ()) if field is not None else range(min(len(footer.leaves), 1))
        chunks = {ordinal: {footer.chunk(ordinal, leaf).compression for leaf in leaves} for ordinal in wanted[path]}
        return {(path, ordinal): ", ".join(map(_compression, found)) for ordinal, found in chunks.items()}

    files = np.unique(inventory.file[groups]).tolist()
    of_files = dataset.footers.look_through(dataset.location, inventory, files, of_file)
    return {place: name for _, found in of_files for place, name in found.items()}


def _compression(codec: int) -> str:
    return _COMPRESSIONS[codec] if 0 <= codec < len(_COMPRESSIONS) else str(codec)


def column_summaries(dataset: Dataset, fields: Sequence[UnischemaField]) -> list[ColumnSummary]:
    """Return the summaries of some columns.

    They are computed from the footers of at most 64 files, and from about 1,000 rows.
    """
    inventory = dataset.inventory
    used = np.unique(inventory.file)
    chunks = inventory.num_row_groups * len(dataset.schema)
    count = min(len(used), _MOST_FILES, _MOST_CHUNKS * len(used) // max(chunks, 1))
    files = used[np.unique(np.linspace(0, len(used) - 1, count).astype(np.int64))]
    groups = np.flatnonzero(np.isin(inventory.file, files))
    known = _statistics(dataset, fields, groups) if len(groups) else {}
    of_files = "" if len(files) == len(used) else f" in {len(files):,} of {len(used):,} files"
    sampled = _sample(dataset, fields)
    return [_summary(field, known.get(field.name), groups, dataset, of_files, sampled[field.name]) for field in fields]


def _statistics(
    dataset: Dataset, fields: Sequence[UnischemaField], groups: NDArray[np.int64]
) -> dict[str, ColumnStatistics]:
    """Return the statistics of stored columns, as a dict by name.

    It is empty if the statistics cannot be read.
    """
    stored = [field for field in fields if field.name not in dataset.partition_names]
    try:
        return read_statistics(dataset.location, dataset.inventory, stored, groups=groups, footers=dataset.footers)
    except PetastoreError:
        return {}


def _bounds(known: ColumnStatistics, field: UnischemaField, groups: NDArray[np.int64]) -> tuple[str, str]:
    """Return minimum and maximum over some row groups as text.

    Each is empty if it is unknown for any of the row groups.
    """
    low, high = known.minimum[groups], known.maximum[groups]
    has_low, has_high = known.has_minimum[groups].all(), known.has_maximum[groups].all()
    if not len(groups):
        return "", ""
    return (_bound(min(low), field) if has_low else ""), (_bound(max(high), field) if has_high else "")


def _bound(value: Any, field: UnischemaField) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")[:40] if field.dtype_name == "str" else repr(value[:24])
    if field.dtype.kind in "mM":
        return time_text(np.array(value, np.int64).astype(field.dtype))
    return f"{value:.6g}" if isinstance(value, (float, np.floating)) else str(value)


def _sample(dataset: Dataset, fields: Sequence[UnischemaField]) -> dict[str, list[Any] | str]:
    """Return decoded values from evenly spaced row groups, as a dict by field name.

    For a column that cannot be read, the dict has the reason instead of a list of values.
    """
    filled = np.flatnonzero(dataset.inventory.rows)
    chosen = np.unique(np.linspace(0, len(filled) - 1, min(len(filled), _SAMPLED_GROUPS)).astype(np.int64))
    sampled: dict[str, list[Any] | str] = {field.name: [] for field in fields}
    by_name = {field.name: field for field in fields}
    for group in filled[chosen].tolist():
        try:
            for name, cells in _sampled_cells(dataset, list(by_name), group):
                values = sampled[name]
                if isinstance(values, list):
                    sampled[name] = _decoded(values, cells, by_name[name])
        except PetastoreError as problem:
            return {name: str(problem)[:300] for name in by_name}
        pa.default_memory_pool().release_unused()
    return sampled


def _decoded(before: list[Any], cells: Any, field: UnischemaField) -> list[Any] | str:
    """Decode cells, and return them after the earlier values; None is a missing value.

    If decoding fails, return the reason as text.
    """
    codec = codec_of(field)
    try:
        sizes = decoded_sizes(cells, field, codec)
        sizes = np.full(len(cells), field.decoded_bytes or 0) if sizes is None else sizes
        count = int(np.searchsorted(np.cumsum(sizes), _SAMPLED_BYTES, side="right"))
        decoded = decode_cells(cells[:count], field, codec, max_cell_bytes=MOST_CELL_BYTES)
        return [*before, *decoded.each(0, count)]
    except (PetastoreError, ValueError, pa.ArrowException, MemoryError) as problem:
        return str(problem)[:300]


def _sampled_cells(dataset: Dataset, names: Sequence[str], group: int) -> Iterator[tuple[str, Any]]:
    """Yield (column name, first cells) of some columns of a row group.

    Columns with large cells yield fewer cells.
    """
    partitions = dataset.partition_values(names)
    yield from ((name, values[group : group + 1]) for name, values in partitions.items())
    file, ordinal = dataset.inventory.place_of(group)
    stored = [name for name in names if name not in partitions]
    sizes = bytes_per_row(dataset.footers.get(dataset.location, file), ordinal, stored)
    most = min(int(dataset.inventory.rows[group]), _SAMPLED_ROWS)
    counts = {name: min(most, int(_SAMPLED_BYTES // max(sizes[name], 1))) for name in stored}
    for count, same in itertools.groupby(sorted(stored, key=lambda name: counts[name]), lambda name: counts[name]):
        together = list(same)
        if count:
            table = stored_rows(dataset, together, group, count)
            yield from ((name, table.column(name).combine_chunks()) for name in together)


def _summary(
    field: UnischemaField,
    known: ColumnStatistics | None,
    groups: NDArray[np.int64],
    dataset: Dataset,
    of_files: str,
    values: list[Any] | str,
) -> ColumnSummary:
    chart, caption = ("", values) if isinstance(values, str) else _chart(field, values)
    low, high = ("", "") if known is None else _bounds(known, field, groups)
    bounds = f"{low} … {high}" if low or high else ""
    counted = np.zeros(0, np.int64) if known is None else groups[known.nulls[groups] >= 0]
    rows = int(dataset.inventory.rows[counted].sum())
    if rows and known is not None:
        nulls = f"{known.nulls[counted].sum() / rows:.2%} null by statistics{of_files}"
    elif isinstance(values, list) and values:
        nulls = f"{sum(value is None for value in values) / len(values):.2%} null in a sample of {len(values):,} rows"
    else:
        nulls = "null share unknown"
    return ColumnSummary(field, nulls, bounds, chart, caption)


def _chart(field: UnischemaField, values: list[Any]) -> tuple[str, str]:
    """Return a histogram as SVG, and its caption; without a chart, "" and the reason."""
    present = [value for value in values if value is not None]
    if not present:
        return "", "no value in the sample, or cells too large for one"
    of = f"of {len(present):,} sampled values"
    if isinstance(present[0], (str, bytes)):
        distinct, counts = np.unique(np.array(present, dtype=object), return_counts=True)
        if len(distinct) <= _DISTINCT and isinstance(present[0], str):
            names = [str(value)[:40] for value in distinct]
            return bars(counts, [f"{name}: {count:,}" for name, count in zip(names, counts, strict=True)]), (
                f"{len(distinct):,} distinct {of}: {', '.join(names)}"
            )
        return _histogram(np.array([len(value) for value in present]), f"of the lengths {of}", np.dtype(np.int64))
    if field.dtype.kind in "biufmM":
        step = max(sum(map(np.size, present)) // _MOST_NUMBERS, 1)
        numbers = np.concatenate([np.ma.compressed(value)[::step] for value in map(np.ma.asarray, present)])
        if numbers.dtype.kind == "O":
            return "", "no chart of nested lists"
        kind = of if field.is_scalar else f"of the numbers in {len(present):,} sampled values"
        return _histogram(numbers, kind, field.dtype)
    return "", f"no chart for {field.dtype_name} values"


def _histogram(numbers: NDArray[Any], of: str, dtype: np.dtype[Any]) -> tuple[str, str]:
    is_time = dtype.kind in "mM"
    if is_time:
        numbers = numbers[~np.isnat(numbers)].astype(np.int64)
    floats = numbers.astype(np.float64)
    floats = floats[np.isfinite(floats)]
    low, high = (floats.min(), floats.max()) if len(floats) else (np.nan, np.nan)
    # Bins between large numbers that are almost equal, such as times in nanoseconds, would have no width.
    least = _BINS * float(np.spacing(np.abs(floats).max(initial=0)))
    if high - low < least:
        margin = least if high > low else max(least, 0.5)
        low, high = low - margin, high + margin
    if not np.isfinite(high - low):
        return "", f"no histogram: no finite range {of}"
    counts, edges = np.histogram(floats, bins=_BINS, range=(low, high))
    edges = np.clip(edges, -_LAST_TIME, _LAST_TIME) if is_time else edges
    names = [time_text(edge.astype(np.int64).astype(dtype)) if is_time else f"{edge:.5g}" for edge in edges]
    labels = [f"{low} – {high}: {count:,}" for low, high, count in zip(names, names[1:], counts, strict=False)]
    return bars(counts, labels), f"histogram {of}, {names[0]} to {names[-1]}"
