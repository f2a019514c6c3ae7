"""Columns that are kept as cells are what is stored, and the first row group shows how many rows to read at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from petastore import UnischemaField
from petastore.codecs import CompressedNdarrayCodec, NdarrayCodec
from petastore.codecs.registry import BoundCodec
from petastore.decoding.buffers import Buffers
from petastore.readers.loaded.kept_cells import KeptCells
from petastore.storage.row_groups.asked_columns import Part

ZIP = UnischemaField("zip", "int32", (3,), CompressedNdarrayCodec())
FIELDS = [UnischemaField("word", str), UnischemaField("free", "int32", (None,), NdarrayCodec()), ZIP]


def kept_cells() -> KeptCells:
    return KeptCells({field.name: BoundCodec.of(field) for field in FIELDS}, Buffers(), most_bytes=1000)


def test_cells_come_whole_however_they_are_read() -> None:
    kept, words = kept_cells(), [f"w{row}" for row in range(5)]
    for step in (1, 2, 5):
        tables = [pa.table({"word": words[at : at + step]}) for at in range(0, 5, step)]
        left = iter([*tables, pa.table({"zip": [b"next"]})])
        cells = kept.read(kept.parts(["word"]), left, 5)
        assert cells["word"].to_pylist() == words
        assert next(left).column_names == ["zip"]


def test_the_first_row_group_shows_how_many_rows_are_read_at_a_time() -> None:
    kept, rows = kept_cells(), 4
    assert kept.parts(["word"]) == [Part(("word",), most_bytes=1000)]
    kept.read(kept.parts(["word"]), iter([pa.table({"word": ["x" * 1024 * 1024] * rows})]), rows)
    (part,) = kept.parts(["word"])
    assert part == Part(("word",), 1, most_bytes=1000)
    assert kept.whole_parts(["word"]) == [Part(("word",), most_bytes=1000)]


def test_what_is_known_of_cells_is_where_they_lie_and_how_large_they_get() -> None:
    kept, free = kept_cells(), FIELDS[1]
    zipped = [ZIP.codec.encode(ZIP, np.arange(3, dtype=np.int32))] * 2  # type: ignore[union-attr]
    arrays = [NdarrayCodec().encode(free, np.arange(rows, dtype=np.int32)) for rows in (1, 7)]
    cells = {"zip": pa.array(zipped, pa.binary()), "free": pa.array(arrays, pa.binary()), "word": pa.array(["a", "b"])}
    files = kept.files(cells)
    assert set(files) == {"zip"}
    assert [files["zip"][row].tobytes() for row in range(2)] == zipped
    assert kept.files({"zip": pa.array([*zipped, None], pa.binary())}) == {}
    assert np.diff(kept.sizes(cells)["free"]).tolist() == [6 * 4]
