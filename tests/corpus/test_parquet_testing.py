"""Tests of Apache's parquet-testing files: each value equals pyarrow's, or reading raises an error that is listed here.

Each file is read as batches, rows and torch tensors. Files and columns that are not listed must be readable.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from petastore.errors import DecodeError, MetadataError, PetastoreError, SchemaError
from tests.corpus.reading import WAYS, check_equal

Refusal = tuple[type[PetastoreError], str]

FOLDER = Path(os.environ["PETASTORE_PARQUET_TESTING"])
FILES = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*") if path.suffix in (".parquet", ".encrypted"))

ENCRYPTED: Refusal = (MetadataError, "must not be encrypted, got an encrypted footer")
SECRET: Refusal = (SchemaError, "is encrypted, which petastore cannot read")
INT96: Refusal = (DecodeError, "INT96 timestamps must be whole microseconds, .* got nanoseconds or a time out of range")

REFUSED: dict[str, Refusal] = {
    # pyarrow cannot read these files either.
    "bad_data/ARROW-GH-41317.parquet": (DecodeError, "the data is damaged: Column .* expected length"),
    "bad_data/ARROW-GH-41321.parquet": (DecodeError, "the data is damaged: Invalid or corrupted bit_width 254"),
    "bad_data/ARROW-GH-45185.parquet": (DecodeError, "the data is damaged: The repetition level at the start"),
    "bad_data/ARROW-GH-47662.parquet": (DecodeError, "the data is damaged: Unexpected end of stream"),
    "bad_data/ARROW-RS-GH-6229-DICTHEADER.parquet": (DecodeError, "the data is damaged: Invalid column metadata"),
    "bad_data/ARROW-RS-GH-6229-LEVELS.parquet": (DecodeError, "the data is damaged: Number of decoded rep / def"),
    "bad_data/PARQUET-1481.parquet": (MetadataError, "Invalid physical column type: UNKNOWN"),
    "data/incorrect_map_schema.parquet": (MetadataError, "Apache Arrow cannot read: Map keys must be annotated"),
    "data/large_string_map.brotli.parquet": (SchemaError, "2,147,483,733 bytes of text inside its values .* 2 GiB"),
    **{name: ENCRYPTED for name in FILES if name.endswith(".encrypted") and "plaintext_footer" not in name},
    "data/aes256/encrypt_columns_plaintext_footer.parquet.encrypted": SECRET,
    "data/int96_from_spark.parquet": INT96,  # one year is 290,000, because the day overflowed when Spark wrote it
    # pyarrow verifies checksums only on request; the bytes of these files were changed after writing.
    "data/datapage_v1-corrupt-checksum.parquet": (DecodeError, "CRC checksum verification failed"),
    "data/rle-dict-uncompressed-corrupt-checksum.parquet": (DecodeError, "CRC checksum verification failed"),
}
"""Files of which no column can be read."""

LEFT_OUT: dict[str, dict[str, Refusal]] = {
    "data/encrypt_columns_plaintext_footer.parquet.encrypted": {
        **dict.fromkeys(("float_field", "double_field"), SECRET),
        "int96_field": INT96,
    },
}
"""Columns that cannot be read, in files whose other columns can."""


def test_apache_parquet_testing_corpus_has_all_listed_files() -> None:
    assert {name.split("/")[0] for name in FILES} == {"data", "bad_data"}
    assert len(FILES) >= 70
    unknown = (REFUSED.keys() | LEFT_OUT.keys()) - set(FILES)
    assert not unknown


@pytest.mark.parametrize("name", FILES)
def test_apache_parquet_testing_files_read_like_pyarrow_or_raise_as_listed(
    name: str, subtests: pytest.Subtests
) -> None:
    for way in WAYS:
        with subtests.test(way):
            check_values(name, way)


def check_values(name: str, way: str) -> None:
    path, read = FOLDER / name, WAYS[way]
    if name in REFUSED:
        refused(lambda: read(path, None), REFUSED[name])
        return
    file = pq.ParquetFile(path, coerce_int96_timestamp_unit="us")  # petastore reads INT96 as microseconds, too
    left_out = LEFT_OUT.get(name, {})
    if left_out:
        refused(lambda: read(path, None), *left_out.values())
    for column, refusal in left_out.items():
        refused(lambda column=column: read(path, [column]), refusal)  # type: ignore[misc]
    columns = [column for column in file.schema_arrow.names if column not in left_out]
    if columns:
        check_equal(path, way, file.read(columns=columns) if left_out else file.read(), columns if left_out else None)


def refused(call: Callable[[], Any], *refusals: Refusal) -> None:
    """Check that a call raises one of these errors."""
    with pytest.raises(tuple({kind for kind, _ in refusals})) as caught:
        call()
    assert any(isinstance(caught.value, kind) and re.search(words, str(caught.value)) for kind, words in refusals)
