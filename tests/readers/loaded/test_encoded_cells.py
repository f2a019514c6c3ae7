"""Tests of encoded cells: buffers and decoded sizes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from petastore import UnischemaField
from petastore.codecs import CompressedNdarrayCodec, NdarrayCodec
from petastore.codecs.registry import BoundCodec
from petastore.readers.loaded.row_group_reader import cell_sizes, cells_in_place

ZIP = UnischemaField("zip", "int32", (3,), CompressedNdarrayCodec())
FREE = UnischemaField("free", "int32", (None,), NdarrayCodec())
COLUMNS = {field.name: BoundCodec.of(field) for field in (ZIP, FREE, UnischemaField("word", str))}


def test_encoded_cells_report_offsets_and_decoded_sizes() -> None:
    zipped = [ZIP.codec.encode(ZIP, np.arange(3, dtype=np.int32))] * 2  # type: ignore[union-attr]
    arrays = [NdarrayCodec().encode(FREE, np.arange(rows, dtype=np.int32)) for rows in (1, 7)]
    cells = {"zip": pa.array(zipped, pa.binary()), "free": pa.array(arrays, pa.binary()), "word": pa.array(["a", "b"])}
    files = cells_in_place(COLUMNS, cells)
    assert set(files) == {"zip"}
    assert [files["zip"][row].tobytes() for row in range(2)] == zipped
    assert cells_in_place(COLUMNS, {"zip": pa.array([*zipped, None], pa.binary())}) == {}
    assert np.diff(cell_sizes(COLUMNS, cells)["free"]).tolist() == [6 * 4]
