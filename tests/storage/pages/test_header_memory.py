"""A page header that says more bytes than its column chunk has takes no memory for them, in files of every size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore import make_batch_reader
from tests.bombs import grown_by

LIE = bytes([0x15, 0x50, 0x15, 0x54, 0x15, 0xFC, 0xC0, 0x85, 0x87, 0x0E, 0x00])
"""A page of type 40 with 42 bytes, stored as 1,900,000,000 bytes."""

USUAL_LIE = bytes(
    [0x15, 0x00, 0x15, 0x54, 0x15, 0xFC, 0xC0, 0x85, 0x87, 0x0E, 0x2C, 0x15, 0x02, 0x15, 0, 0x15, 6, 0x15, 6, 0, 0]
)
"""A data page of version 1 that is as long."""

READ = """
from petastore import make_batch_reader
begin()
with make_batch_reader(sys.argv[1], workers_count=2, shuffle_row_groups=False) as reader:
    try:
        print(sum(len(batch["id"]) for batch in reader.iter_batches(1000)))
    except Exception as problem:
        print(type(problem).__name__)
print(growth())
"""


def written(path: Path, rows: int, *, checksums: bool, compression: str) -> Any:
    table = pa.table({"id": np.random.default_rng(1).integers(0, 2**30, rows)})
    pq.write_table(
        table,
        path,
        use_dictionary=False,
        compression=compression,
        row_group_size=rows // 4,
        write_page_checksum=checksums,
        data_page_size=100_000,
    )
    return pq.read_metadata(path)


@pytest.mark.parametrize("lie", [LIE, USUAL_LIE], ids=["unknown", "usual"])
@pytest.mark.parametrize("rows", [4000, 6_000_000])
@pytest.mark.parametrize("checksums", [False, True])
def test_page_header_with_too_many_bytes_is_rejected_before_memory(
    tmp_path: Path, lie: bytes, rows: int, checksums: bool
) -> None:
    path = tmp_path / "lies.parquet"
    metadata = written(path, rows, checksums=checksums, compression="none")
    data = bytearray(path.read_bytes())
    for group in (2, 3):
        at = metadata.row_group(group).column(0).data_page_offset
        data[at : at + len(lie)] = lie
    path.write_bytes(data)
    grew, said = grown_by(READ, str(path))
    assert said == "DecodeError"
    assert grew < 500_000_000


@pytest.mark.parametrize("checksums", [False, True])
@pytest.mark.parametrize("compression", ["none", "snappy"])
def test_large_row_groups_with_right_page_headers_are_read(tmp_path: Path, checksums: bool, compression: str) -> None:
    path = tmp_path / "right.parquet"
    written(path, 6_000_000, checksums=checksums, compression=compression)
    expected = int(pq.read_table(path)["id"].to_numpy().sum())
    with make_batch_reader(str(path), shuffle_row_groups=False) as reader:
        assert sum(int(batch["id"].sum()) for batch in reader.iter_batches(100_000)) == expected
