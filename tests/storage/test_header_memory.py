"""Tests of page headers that declare too many bytes: an error before allocation, in files of any size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore import make_batch_reader
from petastore.storage.row_groups.page_headers import read_header
from tests.bombs import grown_by
from tests.servers.fixtures import Served

LIE = bytes([0x15, 0x50, 0x15, 0x54, 0x15, 0xFC, 0xC0, 0x85, 0x87, 0x0E, 0x00])
"""A page of type 40 with 42 bytes, declared as 1,900,000,000 bytes."""

USUAL_LIE = bytes(
    [0x15, 0x00, 0x15, 0x54, 0x15, 0xFC, 0xC0, 0x85, 0x87, 0x0E, 0x2C, 0x15, 0x02, 0x15, 0, 0x15, 6, 0x15, 6, 0, 0]
)
"""A data page of version 1 with the same declared size."""

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
def test_page_header_that_declares_too_many_bytes_raises_before_allocation(
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
def test_large_row_groups_with_valid_page_headers_are_read(tmp_path: Path, checksums: bool, compression: str) -> None:
    path = tmp_path / "right.parquet"
    written(path, 6_000_000, checksums=checksums, compression=compression)
    expected = int(pq.read_table(path)["id"].to_numpy().sum())
    with make_batch_reader(str(path), shuffle_row_groups=False) as reader:
        assert sum(int(batch["id"].sum()) for batch in reader.iter_batches(100_000)) == expected


READ_IN_PARTS = READ.replace("shuffle_row_groups=False", 'shuffle_row_groups=False, memory_budget="100MB"')


def write_bomb(path: Path, size: int) -> None:
    """Write a huge row group whose fourth page of `x` expands to this size; the footer declares the real one."""
    numbers = np.random.default_rng(1).integers(0, 2**62, 4_000_000)
    pq.write_table(
        pa.table({"id": numbers, "x": numbers}), path, use_dictionary=False, compression="zstd", row_group_size=10**7
    )
    data = bytearray(path.read_bytes())
    at = pq.read_metadata(path).row_group(0).column(1).data_page_offset
    for _ in range(3):
        header, after = read_header(bytes(data[at : at + 1000]), 0)
        at += after + header[3]
    header, after = read_header(bytes(data[at : at + 1000]), 0)
    stop = at + after + header[3]
    cells = pa.Codec("zstd", compression_level=9).compress(bytes(size)).to_pybytes()
    head = b"\x15\0\x15" + varint(2 * size) + b"\x15%b\x2c\x15" + varint(2 * header[5][1]) + b"\x15\0\x15\6\x15\6\0\0"
    head %= varint(2 * (header[3] - 2))
    assert len(head) + len(cells) < stop - at
    data[at:stop] = (head + cells).ljust(stop - at, b"\0")
    path.write_bytes(data)


def varint(number: int) -> bytes:
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


@pytest.mark.parametrize("program", [READ, READ_IN_PARTS], ids=["whole", "in parts"])
@pytest.mark.parametrize("is_remote", [False, True])
def test_page_that_expands_beyond_the_size_in_the_footer_raises(served: Served, is_remote: bool, program: str) -> None:
    """A page of 160 kB expands to 1 GB, read from a file or by ranges over HTTP."""
    folder = served.root / "expanding"
    folder.mkdir(exist_ok=True)
    write_bomb(folder / "a.parquet", 10**9)
    url = f"http://127.0.0.1:{served.port}/expanding/a.parquet" if is_remote else str(folder / "a.parquet")
    grew, said = grown_by(program, url)
    assert said == "DecodeError"
    assert grew < 400_000_000
