"""Tests of encrypted column chunks: they raise before Arrow reads them, because Arrow would crash the process."""

from __future__ import annotations

import base64
import io
import itertools
import struct
import uuid
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

import petastore
from petastore.errors import DecodeError
from petastore.readers.fetches import fetches_of
from petastore.storage.files.location import open_location
from petastore.storage.footers.footer import Footer
from petastore.storage.footers.footers import read_footer

ROWS = 100
SIGNATURE_BYTES = 28


class Keys(pe.KmsClient):  # type: ignore[misc] # pyarrow has no types
    """A key service that returns its keys unencrypted."""

    def __init__(self, _: Any) -> None:
        super().__init__()

    def wrap_key(self, key_bytes: bytes, _: str) -> bytes:
        return base64.b64encode(key_bytes)


def with_a_secret() -> bytes:
    """Return a file with an encrypted column and a plain-text footer without a signature."""
    properties = pe.CryptoFactory(Keys).file_encryption_properties(
        pe.KmsConnectionConfig(custom_kms_conf={"any": "thing"}),
        pe.EncryptionConfiguration(
            footer_key="f" * 16, column_keys={"c" * 16: ["secret"]}, plaintext_footer=True, double_wrapping=False
        ),
    )
    table, file = pa.table({"id": np.arange(ROWS), "secret": [str(one) for one in range(ROWS)]}), io.BytesIO()
    with pq.ParquetWriter(file, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table, row_group_size=ROWS // 2)
    whole = file.getvalue()
    (length,) = struct.unpack("<I", whole[-8:-4])
    footer = whole[-8 - length : -8 - SIGNATURE_BYTES]
    return whole[: -8 - length] + footer + struct.pack("<I", len(footer)) + b"PAR1"


def footer_of(folder: Path, data: bytes) -> Footer:
    (folder / "a.parquet").write_bytes(data)
    return read_footer(open_location(folder), "a.parquet")


def test_encrypted_chunk_raises_with_column_and_row_group(tmp_path: Path) -> None:
    footer = footer_of(tmp_path, with_a_secret())
    assert [footer.chunk(ordinal, 0).path for ordinal in (0, 1)] == ["id", "id"]
    with pytest.raises(
        DecodeError,
        match=r"'secret', row group 1 in a\.parquet: the footer must have unencrypted metadata .*, got none: .*decrypt",
    ):
        footer.chunk(1, 1)


def test_encryption_check_works_for_all_chunks(tmp_path: Path) -> None:
    file = io.BytesIO()
    table = pa.table(
        {
            "id": np.arange(6),
            "text": ["a", None, "b", "a", "", "b"],
            "lists": [[1], [], None, [2, 3], [4], []],
            "pairs": [{"x": 1, "y": ["a"]}] * 6,
            "map": pa.array([[("k", 1)]] * 6, pa.map_(pa.string(), pa.int8())),
            "fixed": pa.array([[1.0, 2.0]] * 6, pa.list_(pa.float32(), 2)),
            "coded": pa.array(["u", "v"] * 3).dictionary_encode(),
            "nothing": pa.nulls(6),
        }
    )
    pq.write_table(table, file, row_group_size=4)
    footer = footer_of(tmp_path, file.getvalue())
    for ordinal, leaf in itertools.product((0, 1), range(footer.metadata.num_columns)):
        by_arrow, chunk = footer.metadata.row_group(ordinal).column(leaf), footer.chunk(ordinal, leaf)
        first = by_arrow.dictionary_page_offset or by_arrow.data_page_offset
        assert (chunk.path, chunk.values, chunk.first_page) == (by_arrow.path_in_schema, by_arrow.num_values, first)
        assert (chunk.stored_bytes, chunk.has_dictionary) == (
            by_arrow.total_compressed_size,
            by_arrow.has_dictionary_page,
        )


@pytest.mark.parametrize("kept", [False, True], ids=["without a cache", "with a cache"])
def test_encrypted_remote_file_does_not_crash_the_process(tmp_path: Path, kept: bool) -> None:
    name = uuid.uuid4().hex
    files = fsspec.filesystem("memory")
    files.pipe_file(f"/{name}/a.parquet", with_a_secret())
    cache: dict[str, Any] = {"cache_type": "local-disk", "cache_location": tmp_path} if kept else {}
    with petastore.make_batch_reader(f"memory://{name}", ["id"], num_epochs=1, **cache) as reader:
        assert sum(len(batch.id) for batch in reader) == ROWS
    with (
        petastore.make_batch_reader(f"memory://{name}", ["id", "secret"], num_epochs=1, **cache) as reader,
        pytest.raises(DecodeError, match=r"column 'secret', row group . in a\.parquet"),
    ):
        list(reader)
    dataset = petastore.open_dataset(f"memory://{name}")
    assert fetches_of(dataset, ["id"]).requests.tolist() == [1, 1]
    with pytest.raises(DecodeError, match=r"column 'secret', row group . in a\.parquet"):
        fetches_of(dataset, ["id", "secret"])
    files.rm(f"/{name}", recursive=True)
