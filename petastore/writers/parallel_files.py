"""Writer of several Parquet files in parallel, one thread a file, for cells of equal length.

Encoding such cells is a copy, so a single thread that writes pages would be the bottleneck. The first row group decides
which rows a file has: files are the same for any number of threads.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable

import pyarrow as pa

from petastore.codecs import NdarrayCodec, ScalarCodec
from petastore.schema import Unischema
from petastore.work import Pool
from petastore.work.futures import result_of, together
from petastore.writers.columns import Columns, encode_columns
from petastore.writers.files import DataFiles
from petastore.writers.layout import Layout, row_groups
from petastore.writers.parquet import WriterOptions, leaves_of

__all__ = ["has_even_cells", "write_parallel_files"]

_LEAST_UNCOMPRESSED = 0.9
"""Least share of a row group in uncompressed columns, so that the size of a file can be predicted."""


def has_even_cells(schema: Unischema) -> bool:
    """Return whether all rows have equally many bytes, and encoding them is a copy.

    Example:
        >>> from petastore.schema import UnischemaField
        >>> pose = UnischemaField("pose", "float32", (3, 3), NdarrayCodec())
        >>> has_even_cells(Unischema("x", [pose])), has_even_cells(Unischema("x", [pose, UnischemaField("name", str)]))
        (True, False)
    """
    return all(
        not field.nullable
        and field.decoded_bytes is not None
        and (field.codec is None or isinstance(field.codec, (NdarrayCodec, ScalarCodec)))
        for field in schema
    )


def write_parallel_files(
    files: DataFiles,
    report: Callable[[int], object],
    *,
    columns: Columns,
    schema: Unischema,
    layout: Layout,
    pool: Pool,
) -> None:
    """Write columns; if they fill more than one file, write several files in parallel.

    Args:
        files: The first file, and the factory of the others.
        report: Called with the rows of each row group that was written, by any thread.
        columns: Of a number of rows that is known.
        schema: What they are to be, of even cells.
        layout: Where row groups and files end.
        pool: Its threads write, beside the caller's; or encode, where one file is enough.

    Raises:
        EncodeError: A value does not fit; of several the first. Field and row are named.
        StorageError: The storage refused.
    """
    assert columns.rows is not None and columns.between is not None  # noqa: S101, PT018 - of streams nobody asks
    write = functools.partial(_write_between, columns, schema, layout, report)
    first = next(row_groups(encode_columns(columns, schema), layout), None)
    if first is None:
        return
    files.write(first)
    report(first.num_rows)
    per_file = layout.rows_per_file or _rows_of_a_file(first, files.options, layout)
    if per_file is None or per_file >= columns.rows:
        write(files, first.num_rows, columns.rows, pool)
        return
    files.end_after(per_file)
    borders = [*range(0, columns.rows, per_file), columns.rows]
    tasks = [functools.partial(write, files, first.num_rows, per_file)]
    for number, (start, stop) in enumerate(itertools.pairwise(borders[1:]), 1):
        tasks.append(functools.partial(_write_file, write, files, number, start, stop))
    del first
    result_of(together(tasks, lambda: None, functools.partial(pool.submit, priority=0)), pool)


def _rows_of_a_file(first: pa.Table, options: WriterOptions, layout: Layout) -> int | None:
    """Rows of as many row groups as this one as fill a file; None where stored bytes do not follow from Arrow's."""
    sure = 0
    for name, leaves in leaves_of(first.schema).items():
        is_stored_so = all(options["compression"][leaf] == "none" for leaf in leaves)
        if is_stored_so and options["use_dictionary"] and not set(leaves) & set(options["use_dictionary"]):
            sure += first.column(name).nbytes
    return (
        math.ceil(layout.file_bytes / first.nbytes) * first.num_rows
        if sure >= _LEAST_UNCOMPRESSED * first.nbytes
        else None
    )


def _write_file(
    write: Callable[[DataFiles, int, int], None], files: DataFiles, number: int, start: int, stop: int
) -> None:
    own = files.beside(number - 1)
    try:
        write(own, start, stop)
        own.complete(at_least_one=False)
    except BaseException:
        own.give_up()
        raise


def _write_between(
    columns: Columns,
    schema: Unischema,
    layout: Layout,
    report: Callable[[int], object],
    files: DataFiles,
    start: int,
    stop: int,
    pool: Pool | None = None,
) -> None:
    assert columns.between is not None  # noqa: S101 - of streams nobody asks
    cells = encode_columns(columns.between(start, stop), schema, pool, first_row=start)
    for group in row_groups(cells, dataclasses.replace(layout, rows_per_file=None)):
        files.write(group)
        report(group.num_rows)
