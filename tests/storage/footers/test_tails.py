"""Tests of reading the tail of a file: footers of any size, local and remote, and files that are not Parquet."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore.errors import FileMissingError, MetadataError
from petastore.storage.files.location import Location, open_location
from petastore.storage.footers import tails as tails_module
from petastore.storage.footers.tails import NoParquetError, Tails, digest_of, footer_in
from tests.storage.conftest import Put

SMALL = pa.table({"id": range(10)})
WIDE = pa.table({f"column {number}": [number] for number in range(2000)})


def file_of(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue().to_pybytes())


def footer_of(data: bytes) -> bytes:
    return data[-8 - int.from_bytes(data[-8:-4], "little") : -8]


@pytest.mark.parametrize("order", [("small", "wide", "small"), ("wide", "small", "wide")])
def test_footer_of_any_size_is_read_from_the_file_tail(location: Location, put: Put, order: tuple[str, ...]) -> None:
    files = {"small": file_of(SMALL), "wide": file_of(WIDE)}
    assert len(footer_of(files["wide"])) > 64 * 1024 > len(files["small"])
    for name, data in files.items():
        put(name, data)
    with Tails(location) as tails:
        for name in order:
            found = tails.read(name)
            assert (found.size, found.footer) == (len(files[name]), footer_of(files[name]))


def test_file_tail_has_the_etag_or_mtime_of_a_remote_file(location: Location, put: Put) -> None:
    put("x", file_of(SMALL))
    with Tails(location) as tails:
        version = tails.read("x").version
    assert version is None if location.is_local else version is not None and version.tells


@pytest.mark.parametrize(
    ("content", "kind", "said"),
    [
        (b"", NoParquetError, "x is not a Parquet file: the file has only 0 bytes"),
        (b"PAR1PAR1", NoParquetError, "x is not a Parquet file: the file has only 8 bytes"),
        (
            b"hello, I am a text\n",
            NoParquetError,
            r"x is not a Parquet file: it must end with b'PAR1', got b'ext\\n'",
        ),
        (
            b"PAR1" + b"\x00" * 20,
            MetadataError,
            r"x is a truncated or damaged Parquet file: it must end with b'PAR1', got b'\\x00\\x00\\x00\\x00'",
        ),
        (
            b"PAR1" + b"\x00" * 20 + b"PARE",
            MetadataError,
            r"x must not be encrypted, got an encrypted footer\. Decrypt the file first",
        ),
        (
            b"PAR1" + b"\x00" * 20 + b"\xff\x00\x00\x00PAR1",
            MetadataError,
            "must declare a footer of 1 to 20 bytes, got 255",
        ),
        (b"PAR1" + b"\x00" * 24 + b"PAR1", MetadataError, "must declare a footer of 1 to 20 bytes, got 0"),
    ],
    ids=["empty", "short", "text", "cut", "encrypted", "long footer", "no footer"],
)
def test_file_tail_without_a_readable_footer_raises_with_the_reason(
    location: Location, put: Put, content: bytes, kind: type[MetadataError], said: str
) -> None:
    put("x", content)
    with Tails(location) as tails, pytest.raises(MetadataError, match=said) as caught:
        tails.read("x")
    assert type(caught.value) is kind


def test_file_tail_with_a_footer_above_the_limit_raises(
    location: Location, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = file_of(SMALL)
    put("x", data)
    length = len(footer_of(data))
    with Tails(location) as tails:
        monkeypatch.setattr(tails_module, "MAX_FOOTER_BYTES", length)
        assert tails.read("x").footer == footer_of(data)
        monkeypatch.setattr(tails_module, "MAX_FOOTER_BYTES", length - 1)
        with pytest.raises(MetadataError, match=f"the footer of .* must have at most {length - 1} bytes, got {length}"):
            tails.read("x")


def test_file_tail_of_a_missing_file_raises(location: Location, put: Put) -> None:
    put("x", file_of(SMALL))
    with Tails(location) as tails, pytest.raises(FileMissingError, match="nowhere"):
        tails.read("nowhere")


@pytest.mark.parametrize(
    ("content", "is_parquet"), [(b"PAR", False), (b"PAR1", True), (b"..PARE", True), (b"PAR1.", False)]
)
def test_parquet_file_is_recognized_by_its_magic_bytes(
    location: Location, put: Put, content: bytes, is_parquet: bool
) -> None:
    put("x", content)
    with Tails(location) as tails:
        assert tails.is_parquet("x") is is_parquet


def test_empty_local_file_is_not_parquet(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with Tails(open_location(tmp_path)) as tails:
        assert not tails.is_parquet("x")


def test_file_tail_shorter_than_the_footer_returns_none() -> None:
    data = file_of(SMALL)
    footer = footer_of(data)
    assert footer_in(data[-len(footer) - 8 :], len(data), "x") == footer
    assert footer_in(data[-len(footer) - 7 :], len(data), "x") is None
    assert footer_in(data[-8:], len(data), "x") is None


def test_footer_digest_covers_only_the_footer(tmp_path: Path) -> None:
    pq.write_table(SMALL, tmp_path / "x")
    footer = footer_of((tmp_path / "x").read_bytes())
    assert digest_of(footer) == hashlib.sha256(footer).hexdigest()[:32] != digest_of(footer + b"\x00")
