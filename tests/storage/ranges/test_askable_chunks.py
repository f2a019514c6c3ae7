"""Nothing that a footer says ends the process: chunks that Arrow cannot be asked about are refused before that."""

from __future__ import annotations

import base64
import io
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
from petastore.inventory import DataFile
from petastore.readers.fetches import fetches_of
from petastore.storage.ranges.askable_chunks import refuse_unaskable_chunks

ROWS = 100
SIGNATURE_BYTES = 28
FILE = DataFile("a.parquet", 1000, "")


class Keys(pe.KmsClient):  # type: ignore[misc] # pyarrow has no types
    """Keys that are no secret."""

    def __init__(self, _: Any) -> None:
        super().__init__()

    def wrap_key(self, key_bytes: bytes, _: str) -> bytes:
        return base64.b64encode(key_bytes)


def with_a_secret() -> bytes:
    """A file with an encrypted column that does not say so: its footer is in plain text, and has no signature."""
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


def test_an_encrypted_chunk_is_refused_by_its_column_and_row_group() -> None:
    metadata = pq.read_metadata(io.BytesIO(with_a_secret()))
    refuse_unaskable_chunks(metadata, [0, 1], [0], FILE)
    with pytest.raises(DecodeError, match=r"'secret', row group 1 in a\.parquet: the footer is damaged: .*decrypt"):
        refuse_unaskable_chunks(metadata, [1], [0, 1], FILE)


def test_chunks_of_all_kinds_may_be_asked_about() -> None:
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
    metadata = pq.read_metadata(file)
    leaves = range(metadata.num_columns)
    refuse_unaskable_chunks(metadata, [0, 1], leaves, FILE)
    for leaf in leaves:
        refuse_unaskable_chunks(metadata, [1], [leaf], FILE)


@pytest.mark.parametrize("kept", [False, True], ids=["without a cache", "with a cache"])
def test_a_process_survives_a_file_elsewhere_with_a_secret(tmp_path: Path, kept: bool) -> None:
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
