"""Tests of `compression="auto"`: incompressible columns are stored uncompressed; explicit options win."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore import Unischema, UnischemaField, write_dataset
from petastore.codecs import NdarrayCodec, VectorCodec
from petastore.schema.arrow import storage_schema
from petastore.writers.parquet import COMPRESSIONS, choose_compression, writer_options

SCHEMA = Unischema(
    "x",
    [
        UnischemaField("id", "int64"),
        UnischemaField("noise", "float32", (1024,), NdarrayCodec()),  # only its header is compressible
        UnischemaField("zeros", "float32", (64,), NdarrayCodec()),
        UnischemaField("noise_list", "float64", (64,), nullable=True),
        UnischemaField("zeros_list", "float64", (64,), nullable=True),
        UnischemaField("noise_number", "float32"),
        UnischemaField("zero_number", "float32"),
        UnischemaField("noise_bytes", bytes, nullable=True),
        UnischemaField("text", "str"),
    ],
)
UNCOMPRESSED = {"noise", "noise_list", "noise_number", "noise_bytes"}


def rows(first: int, count: int, *, noise: bool = True) -> list[dict[str, Any]]:
    rng = np.random.default_rng(first)
    return [
        {
            "id": number,
            "noise": rng.random(1024, np.float32) * noise,
            "zeros": np.zeros(64, np.float32),
            "noise_list": rng.random(64) * noise if number % 5 else None,
            "zeros_list": np.zeros(64) if number % 5 else None,
            "noise_number": rng.random(dtype=np.float32) * noise,
            "zero_number": np.float32(0),
            "noise_bytes": rng.bytes(100) if noise and number % 3 else None,
            "text": str(number),
        }
        for number in range(first, first + count)
    ]


def stored_as_they_are(path: Path) -> set[str]:
    """Return the columns that are uncompressed in all row groups of a file."""
    found = pq.read_metadata(path)
    chunks = [
        found.row_group(group).column(leaf)
        for group in range(found.num_row_groups)
        for leaf in range(len(found.schema))
    ]
    compressed = {chunk.path_in_schema.split(".")[0] for chunk in chunks if chunk.compression == "SNAPPY"}
    plain = {chunk.path_in_schema.split(".")[0] for chunk in chunks if chunk.compression == "UNCOMPRESSED"}
    assert not compressed & plain
    return plain


def test_compression_auto_skips_incompressible_columns(tmp_path: Path) -> None:
    write_dataset(tmp_path / "x", SCHEMA, rows(0, 6000), rows_per_file=5000)
    assert [stored_as_they_are(path) for path in sorted((tmp_path / "x").glob("*.parquet"))] == [UNCOMPRESSED] * 2


def test_requested_compression_applies_to_all_columns(tmp_path: Path) -> None:
    write_dataset(tmp_path / "x", SCHEMA, rows(0, 5000), compression="snappy")
    (path,) = (tmp_path / "x").glob("*.parquet")
    assert stored_as_they_are(path) == set()


def test_compression_auto_compresses_small_data(tmp_path: Path) -> None:
    write_dataset(tmp_path / "x", SCHEMA, rows(0, 3))
    (path,) = (tmp_path / "x").glob("*.parquet")
    assert stored_as_they_are(path) == set()


def test_compression_auto_works_without_rows(tmp_path: Path) -> None:
    write_dataset(tmp_path / "x", SCHEMA, [])
    assert petastore.open_dataset(tmp_path / "x").inventory.num_rows == 0


def test_compression_auto_samples_the_whole_row_group(tmp_path: Path) -> None:
    schema = Unischema("x", [UnischemaField("x", bytes)])
    noise = [np.random.default_rng(number).bytes(1000) for number in range(400)]
    zeros = [bytes(1000)] * 400
    both = pa.table({"x": noise[:50] + zeros}, storage_schema(schema))
    options = writer_options(schema, "auto")
    assert choose_compression(options, both)["compression"] == {"x": "snappy"}
    assert choose_compression(options, both.slice(0, 50))["compression"] == {"x": "none"}
    in_chunks = pa.concat_tables([pa.table({"x": [cell]}, storage_schema(schema)) for cell in noise])
    assert choose_compression(options, in_chunks)["compression"] == {"x": "none"}
    assert choose_compression(options, in_chunks) == choose_compression(options, in_chunks.combine_chunks())


def test_compression_auto_chooses_per_leaf_of_nested_columns(tmp_path: Path) -> None:
    schema = Unischema(
        "x", [UnischemaField("a.b", "float64", (64,)), UnischemaField("a", "float64", (64,), VectorCodec())]
    )
    noise = np.random.default_rng(0).random((500, 64))
    write_dataset(tmp_path / "x", schema, {"a.b": noise, "a": noise})
    (path,) = (tmp_path / "x").glob("*.parquet")
    group = pq.read_metadata(path).row_group(0)
    found = {group.column(leaf).path_in_schema: group.column(leaf).compression for leaf in range(group.num_columns)}
    assert found.pop("a.b.list.element") == "UNCOMPRESSED"
    assert len(found) == 4
    assert set(found.values()) == {"SNAPPY"}


@pytest.mark.parametrize("compression", [*COMPRESSIONS, None])
def test_explicit_compression_is_not_changed_by_sampling(compression: Any) -> None:
    options = writer_options(SCHEMA, compression)
    assert choose_compression(options, storage_schema(SCHEMA).empty_table()) is options


def test_dataset_whose_files_differ_in_compression_is_read(tmp_path: Path) -> None:
    written = rows(0, 4500) + rows(4500, 500, noise=False)
    write_dataset(tmp_path / "x", SCHEMA, written[:4500])
    write_dataset(tmp_path / "x", SCHEMA, written[4500:], mode="append")
    first, second = sorted((tmp_path / "x").glob("*.parquet"))
    assert (stored_as_they_are(first), stored_as_they_are(second)) == (UNCOMPRESSED, set())
    for _ in range(2):  # with the footer from the listing, and from the manifest
        with petastore.make_reader(tmp_path / "x", shuffle_row_groups=False) as reader:
            for expected, found in zip(written, reader, strict=True):
                assert found.id == expected["id"]
                np.testing.assert_array_equal(found.noise, expected["noise"])
                assert found.noise_bytes == expected["noise_bytes"]
