"""Tests of `max_cell_bytes`: cells that decode to too many bytes are rejected before memory is allocated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import petastore
from petastore import UnischemaField, make_batch_reader, make_mixed_reader, make_reader
from petastore.codecs import CompressedImageCodec, CompressedNdarrayCodec, ImageDecode, NdarrayCodec, VectorCodec
from petastore.codecs.by_cell import DataframeColumnCodec
from petastore.codecs.plain import plain_sizes
from petastore.codecs.registry import codec_of
from petastore.decoding.decode import decoded_sizes
from petastore.errors import DecodeError, InvalidArgumentError
from petastore.readers.random_access import RandomAccess
from tests import bombs

MIB = 1024 * 1024
ARRAY = UnischemaField("a", np.uint8, (None,), CompressedNdarrayCodec())
PHOTO = UnischemaField("a", np.uint8, (None, None, 3), CompressedImageCodec("jpeg"))
SCAN = UnischemaField("a", np.uint8, (None, None, 3), CompressedImageCodec("png"))
VECTOR = UnischemaField("a", np.float64, (None,), VectorCodec())


class RepeatedCodec(DataframeColumnCodec):
    """Custom codec whose cells decode to that number of zeros; it does not report decoded sizes."""

    def encode(self, unischema_field: UnischemaField, value: Any) -> int:  # noqa: ARG002
        return len(value)

    def decode(self, unischema_field: UnischemaField, value: Any) -> Any:
        return np.zeros(value, unischema_field.dtype)

    def spark_dtype(self) -> str:
        return "long"


def known(field: UnischemaField, cells: list[Any]) -> list[int]:
    codec = codec_of(field)
    sizes = decoded_sizes(pa.array(cells, codec.storage_type(field)), field, codec)
    assert sizes is not None
    return sizes.tolist()


def first_value(url: str, **options: Any) -> Any:
    with make_reader(url, workers_count=1, **options) as reader:
        return next(reader).a


@pytest.mark.parametrize("reader_of", [make_reader, make_batch_reader])
@pytest.mark.parametrize(
    ("field", "large", "small", "size"),
    [
        (ARRAY, bombs.npz(3 * MIB), bombs.npz(100), 3 * MIB + 128),
        (ARRAY, bombs.npz_by_zipfile(3 * MIB), bombs.npz(100), 3 * MIB + 128),
        (UnischemaField("a", np.uint8, (None,), NdarrayCodec()), bombs.npy_header("|u1", (3 * MIB,)) + bytes(3 * MIB),
         bombs.npy_header("|u1", (1,)) + b"1", 3 * MIB + 128),
        (SCAN, bombs.png(1024, 1024), bombs.png(8, 8), 3 * MIB),
        (PHOTO, bombs.jpeg(1024, 1024), bombs.jpeg(8, 8), 3 * MIB),
        (VECTOR, {"type": 0, "size": 3 * MIB // 8, "indices": [], "values": []},
         {"type": 1, "size": None, "indices": None, "values": [1.0]}, 3 * MIB),
    ],
    ids=["npz", "npz of zipfile", "npy", "png", "jpeg", "vector"],
)  # fmt: skip
def test_max_cell_bytes_raises_with_the_cells_position(
    tmp_path: Path, reader_of: Any, field: UnischemaField, large: Any, small: Any, size: int
) -> None:
    url = bombs.write_cells(tmp_path, field, [small, small, small, large, small], rows_per_row_group=2)
    with reader_of(url, max_cell_bytes=2 * MIB) as reader, pytest.raises(DecodeError) as refused:
        list(reader)
    error = refused.value
    assert (error.column, error.file, error.row_group, error.row) == ("a", "part-0.parquet", 1, 1)
    assert f"{size:,} bytes" in str(error)
    assert f"max_cell_bytes={2 * MIB:,}" in str(error)
    with reader_of(url, max_cell_bytes=size) as reader:
        assert sum(1 for _ in reader) > 0


def test_max_cell_bytes_ignores_rows_not_selected(tmp_path: Path) -> None:
    url = bombs.write_cells(tmp_path, ARRAY, [bombs.npz(10), bombs.npz(3 * MIB), bombs.npz(20)])
    with make_reader(url, max_cell_bytes=MIB, filters=[("id", "!=", 1)]) as reader:
        assert [len(row.a) for row in reader] == [10, 20]
    with make_reader(url, ["id"], max_cell_bytes=MIB) as reader:
        assert len(list(reader)) == 3


def test_max_cell_bytes_has_a_default_and_accepts_none(tmp_path: Path) -> None:
    url = bombs.write_cells(tmp_path, ARRAY, [bombs.npz(8), bombs.npz(270_000_000)])
    refused = pytest.raises(DecodeError, match=r"at most max_cell_bytes=268,435,456, got 270,000,128 bytes")
    with make_reader(url) as reader, refused:
        list(reader)
    with make_reader(url, max_cell_bytes=None) as reader:
        assert [row.a.shape for row in reader] == [(8,), (270_000_000,)]


def test_max_cell_bytes_applies_to_every_reader(tmp_path: Path) -> None:
    url = bombs.write_cells(tmp_path, ARRAY, [bombs.npz(3 * MIB)] * 4)
    windows = petastore.NGram({0: ["id", "a"], 1: ["a"]}, delta_threshold=1, timestamp_field="id")
    limit: dict[str, Any] = {"max_cell_bytes": MIB}
    readers = [
        make_reader(url, windows, **limit),
        make_mixed_reader([url, url], [1, 1], **limit),
        make_mixed_reader([{"dataset_url": url}, url], [1, 1], source_column="of", **limit),
    ]
    for reader in readers:
        with reader, pytest.raises(DecodeError, match="max_cell_bytes"):
            next(reader)
    with pytest.raises(DecodeError, match="max_cell_bytes"):
        RandomAccess(petastore.open_dataset(url), max_cell_bytes=MIB).take([2])
    kept = petastore.predicates.in_lambda(["a"], lambda a: len(a) > 3)
    with pytest.raises(DecodeError, match="max_cell_bytes"):
        make_reader(url, predicate=kept, filter_cache=False, **limit)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "1 gig"])
def test_max_cell_bytes_must_be_an_int(tmp_path: Path, wrong: Any) -> None:
    url = bombs.write_cells(tmp_path, ARRAY, [bombs.npz(1)])
    with pytest.raises(InvalidArgumentError, match="max_cell_bytes"):
        make_reader(url, max_cell_bytes=wrong)
    with pytest.raises(InvalidArgumentError, match="max_cell_bytes"):
        RandomAccess(petastore.open_dataset(url), max_cell_bytes=wrong)


def test_max_cell_bytes_raises_at_the_call_for_large_fields(tmp_path: Path) -> None:
    field = UnischemaField("a", np.uint8, (1000, 1000), CompressedNdarrayCodec())
    url = bombs.write_cells(tmp_path, field, [bombs.npz(1_000_000, header=bombs.npy_header("|u1", (1000, 1000)))])
    needed = r"max_cell_bytes must be at least 1,000,000 for field 'a' \(uint8 of shape \(1000, 1000\)\), got 999,999"
    with pytest.raises(InvalidArgumentError, match=needed):
        make_reader(url, max_cell_bytes=999_999)
    assert first_value(url, max_cell_bytes=1_000_000).shape == (1000, 1000)


def test_max_cell_bytes_counts_decoded_bytes_of_image_regions(tmp_path: Path) -> None:
    url = bombs.write_cells(tmp_path, PHOTO, [bombs.jpeg(4096, 4096)])
    eighth, region = ImageDecode(size=(512, 512)), ImageDecode(region=(8, 8, 10, 10))
    assert first_value(url, max_cell_bytes=MIB, decode={"a": eighth}).shape == (512, 512, 3)
    with pytest.raises(DecodeError, match=r"at most max_cell_bytes=1,048,576, got 50,331,648 bytes"):
        first_value(url, max_cell_bytes=MIB, decode={"a": region})
    progressive = bombs.write_cells(tmp_path / "p", PHOTO, [bombs.jpeg(4096, 4096, scans="progressive")])
    with pytest.raises(DecodeError, match="100,663,296 bytes"):  # the coefficients of all pixels stay in memory
        first_value(progressive, max_cell_bytes=MIB, decode={"a": eighth})


def test_max_cell_bytes_checks_values_of_codecs_without_sizes(tmp_path: Path) -> None:
    url = bombs.write_cells(tmp_path, UnischemaField("a", np.uint8, (None,), RepeatedCodec()), [5, 3 * MIB, 6])
    with make_reader(url, max_cell_bytes=MIB) as reader, pytest.raises(DecodeError) as refused:
        list(reader)
    assert (refused.value.row, refused.value.column) == (1, "a")
    with make_reader(url) as reader:
        assert [len(row.a) for row in reader] == [5, 3 * MIB, 6]


def test_max_cell_bytes_counts_text_and_lists(tmp_path: Path) -> None:
    text = UnischemaField("a", np.str_)
    url = bombs.write_cells(tmp_path, text, ["short", "long" * MIB])
    with make_reader(url, max_cell_bytes=MIB) as reader, pytest.raises(DecodeError, match="row 1 "):
        list(reader)
    of_lists = pa.array([[[1, 2], [3, 4]], [], [[5, 6]]], pa.list_(pa.list_(pa.int8())))
    assert np.array_equal(_plain(of_lists, UnischemaField("a", np.int64, (None, None))), [32, 0, 16])
    chosen = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1], pa.int8()), pa.array(["", "x" * 1000]))
    assert np.array_equal(_plain(chosen, text), [2064, 64, 2064])


def _plain(cells: Any, field: UnischemaField) -> Any:
    return plain_sizes(cells, field)


def test_max_cell_bytes_ignores_missing_cells() -> None:
    field = UnischemaField("a", np.uint8, (None,), CompressedNdarrayCodec(), nullable=True)
    assert known(field, [None, bombs.npz(1000), None]) == [0, 1128, 0]


def test_size_check_reports_zero_for_damaged_cells() -> None:
    for field in (ARRAY, PHOTO, SCAN):
        assert known(field, [b"", b"PK\3\4", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", bytes(100)]) == [0] * 5


def test_decoded_size_that_a_cell_declares_is_read_without_decoding() -> None:
    assert known(ARRAY, [bombs.npz(10, says=2**32 - 2)]) == [2**32 - 2]
    assert known(SCAN, [bombs.png(8, 8).replace(bytes([0, 0, 0, 8]) * 2, bytes([0, 0, 64, 0]) * 2)]) == [3 * 2**28]


READ_ALL = """
from petastore import make_reader
small, url = sys.argv[1:3]
with make_reader(small, workers_count=2) as reader:
    list(reader)
begin()
try:
    with make_reader(url, workers_count=2) as reader:
        list(reader)
except ValueError as problem:
    print(problem)
print(growth())
"""


@pytest.mark.parametrize(
    ("field", "small", "large"),
    [
        (ARRAY, bombs.npz(10), bombs.npz(600_000_000)),
        (SCAN, bombs.png(8, 8), bombs.png(16_384, 16_384)),
        (PHOTO, bombs.jpeg(8, 8), bombs.jpeg(12_000, 12_000, scans="progressive")),
        (VECTOR, {"type": 0, "size": 1, "indices": [], "values": []},
         {"type": 0, "size": 2**27, "indices": [], "values": []}),
    ],
    ids=["npz", "png", "jpeg", "vector"],
)  # fmt: skip
def test_decompression_bomb_raises_without_allocation(
    tmp_path: Path, field: UnischemaField, small: Any, large: Any
) -> None:
    honest = bombs.write_cells(tmp_path / "small", field, [small] * 4)
    url = bombs.write_cells(tmp_path / "large", field, [small, large, small, large])
    grew, said = bombs.grown_by(READ_ALL, honest, url)
    assert "max_cell_bytes=268,435,456" in said
    assert grew < 40 * MIB
