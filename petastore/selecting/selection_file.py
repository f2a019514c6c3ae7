"""The file of a remembered selection: which rows of which row groups are kept.

A line with format and version, a line with the SHA-256 of the rest, and an Arrow IPC file with one record for each row
group: its number, how many rows are kept, and a bitmap of them, most significant bit first, unless all or none are. Its
metadata say what left the other rows out, as a JSON list of `[by, row groups, rows]`. A file is written aside and
renamed. Nothing in it is executed, and what is damaged, foreign, of another version, or does
not fit the dataset's row groups is as good as not there.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import ipc

from petastore.arrow.memory import numbers_of
from petastore.plan.selection import Pruned

__all__ = ["Kept", "as_kept", "read_selection_file", "selection_bytes", "write_aside"]

Kept: TypeAlias = bool | NDArray[np.bool_]
"""Which rows of a row group are kept: all, none, or those that are True."""

_FORMAT = b"petastore.selection/2\n"
_DIGEST = 64
_MOST_BYTES = 1 << 30
_COLUMNS = pa.schema(
    [
        pa.field("group", pa.int64(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
        pa.field("bitmap", pa.large_binary()),
    ]
)


def as_kept(rows: NDArray[np.bool_]) -> Kept:
    """A bitmap in its shortest form.

    Example:
        >>> as_kept(np.array([True, True])), as_kept(np.array([True, False]))
        (True, array([ True, False]))
    """
    if rows.all():
        return True
    return rows if rows.any() else False


def selection_bytes(
    key: str, kept: Mapping[int, Kept], rows: NDArray[np.int64], pruned: Sequence[Pruned] = ()
) -> bytes:
    """The file for what is kept of some row groups.

    Args:
        key: What the file is the answer to.
        kept: By row group.
        rows: Rows of each row group of the dataset.
        pruned: What left the other rows out, as far as that is known.
    """
    groups = sorted(kept)
    counts = [int(np.sum(np.broadcast_to(kept[group], int(rows[group])))) for group in groups]
    bitmaps = [None if isinstance(kept[group], bool) else np.packbits(kept[group]).tobytes() for group in groups]
    columns = [pa.array(values, field.type) for values, field in zip((groups, counts, bitmaps), _COLUMNS, strict=True)]
    sink = io.BytesIO()
    with ipc.new_file(sink, _COLUMNS.with_metadata(_metadata(key, rows, pruned))) as writer:
        writer.write(pa.record_batch(columns, schema=_COLUMNS))
    content = sink.getvalue()
    return _FORMAT + hashlib.sha256(content).hexdigest().encode() + b"\n" + content


def _metadata(key: str, rows: NDArray[np.int64], pruned: Sequence[Pruned]) -> dict[bytes, bytes]:
    steps = json.dumps([dataclasses.astuple(step) for step in pruned])
    return {b"key": key.encode(), b"row_groups": str(len(rows)).encode(), b"pruned": steps.encode()}


def write_aside(path: Path, data: bytes) -> None:
    """Puts a whole file in place of the old one, in one step.

    Raises:
        OSError: The directory cannot be written; nothing is left there.
    """
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".aside")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(aside).replace(path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise


def read_selection_file(
    path: Path, key: str, rows: NDArray[np.int64]
) -> tuple[dict[int, Kept], tuple[Pruned, ...]] | None:
    """Return the kept rows by row group, and what pruned the others; None if no valid file exists.

    Args:
        path: The file.
        key: Key of the selection, which the file must have.
        rows: Rows of each row group of the dataset.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            return None
        return _decoded(path.read_bytes(), key, rows)
    except (OSError, ValueError, RecursionError, pa.ArrowException):
        return None


def _decoded(data: bytes, key: str, rows: NDArray[np.int64]) -> tuple[dict[int, Kept], tuple[Pruned, ...]] | None:
    content = data[len(_FORMAT) + _DIGEST + 1 :]
    if data[: len(_FORMAT) + _DIGEST] != _FORMAT + hashlib.sha256(content).hexdigest().encode():
        return None
    table = ipc.open_file(content).read_all()
    table.validate(full=True)
    pruned = _pruned(table.schema)
    if not table.schema.equals(_COLUMNS) or table.schema.metadata != _metadata(key, rows, pruned):
        return None
    groups, counts = (numbers_of(table.column(name).combine_chunks()) for name in ("group", "count"))
    if len(groups) and (groups[0] < 0 or groups[-1] >= len(rows) or (np.diff(groups) <= 0).any()):
        return None
    if sum(counts.tolist()) + sum(step.rows for step in pruned) > int(rows.sum()):
        return None
    bitmaps = table.column("bitmap").to_pylist()
    kept = {
        group: _kept(bitmap, count, size)
        for group, count, size, bitmap in zip(
            groups.tolist(), counts.tolist(), rows[groups].tolist(), bitmaps, strict=True
        )
    }
    return kept, pruned


def _pruned(schema: pa.Schema) -> tuple[Pruned, ...]:
    steps = json.loads((schema.metadata or {}).get(b"pruned", b""))
    if not isinstance(steps, list) or not all(_is_step(step) for step in steps):
        raise ValueError("it does not say what left rows out")
    return tuple(Pruned(*step) for step in steps)


def _is_step(step: Any) -> bool:
    return isinstance(step, list) and [type(part) for part in step] == [str, int, int]


def _kept(packed: bytes | None, count: int, rows: int) -> Kept:
    if packed is None:
        if count not in (0, rows):
            raise ValueError("some rows are counted, but not which")
        return count == rows
    bitmap = np.unpackbits(np.frombuffer(packed, np.uint8), count=rows).astype(np.bool_)
    if len(packed) != -(-rows // 8) or int(bitmap.sum()) != count or not 0 < count < rows:
        raise ValueError("the bitmap does not hold the rows that are counted")
    return bitmap
