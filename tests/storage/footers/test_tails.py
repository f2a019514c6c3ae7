"""The end of a file tells its footer, from here or afar, however long; what is no Parquet is told apart and refused."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore.errors import FileMissingError, MetadataError
from petastore.storage.files.location import Location, open_location
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
def test_footers_are_found_whatever_was_read_before(location: Location, put: Put, order: tuple[str, ...]) -> None:
    files = {"small": file_of(SMALL), "wide": file_of(WIDE)}
    assert len(footer_of(files["wide"])) > 64 * 1024 > len(files["small"])
    for name, data in files.items():
        put(name, data)
    with Tails(location) as tails:
        for name in order:
            found = tails.read(name)
            assert (found.size, found.footer) == (len(files[name]), footer_of(files[name]))


def test_a_version_is_told_where_it_can_be_demanded_later(location: Location, put: Put) -> None:
    put("x", file_of(SMALL))
    with Tails(location) as tails:
        version = tails.read("x").version
    assert version is None if location.is_local else version is not None and version.tells


@pytest.mark.parametrize(
    ("content", "kind", "said"),
    [
        (b"", NoParquetError, "x has 0 bytes and is no Parquet"),
        (b"PAR1PAR1", NoParquetError, "x has 8 bytes and is no Parquet"),
        (b"hello, I am a text\n", NoParquetError, r"x is no Parquet: it ends with b'ext\\n'"),
        (b"PAR1" + b"\x00" * 20, MetadataError, "x begins as Parquet, but was cut short or damaged"),
        (b"PAR1" + b"\x00" * 20 + b"PARE", MetadataError, "encrypted footer.*decrypt it first"),
        (
            b"PAR1" + b"\x00" * 20 + b"\xff\x00\x00\x00PAR1",
            MetadataError,
            "its footer has 255 bytes, but the file has 32",
        ),
        (b"PAR1" + b"\x00" * 24 + b"PAR1", MetadataError, "its footer has 0 bytes"),
    ],
    ids=["empty", "short", "text", "cut", "encrypted", "long footer", "no footer"],
)
def test_what_cannot_be_read_is_refused_with_the_reason(
    location: Location, put: Put, content: bytes, kind: type[MetadataError], said: str
) -> None:
    put("x", content)
    with Tails(location) as tails, pytest.raises(MetadataError, match=said) as caught:
        tails.read("x")
    assert type(caught.value) is kind


def test_a_footer_larger_than_asked_for_is_refused_before_it_is_read(location: Location, put: Put) -> None:
    data = file_of(SMALL)
    put("x", data)
    length = len(footer_of(data))
    with Tails(location) as tails:
        assert tails.read("x", max_bytes=length).footer == footer_of(data)
        with pytest.raises(MetadataError, match=f"footer has {length} bytes; at most {length - 1} are read"):
            tails.read("x", max_bytes=length - 1)


def test_a_file_that_is_not_there_is_missing(location: Location, put: Put) -> None:
    put("x", file_of(SMALL))
    with Tails(location) as tails, pytest.raises(FileMissingError, match="nowhere"):
        tails.read("nowhere")


@pytest.mark.parametrize(
    ("content", "is_parquet"), [(b"PAR", False), (b"PAR1", True), (b"..PARE", True), (b"PAR1.", False)]
)
def test_parquet_is_known_by_its_end(location: Location, put: Put, content: bytes, is_parquet: bool) -> None:
    put("x", content)
    with Tails(location) as tails:
        assert tails.is_parquet("x") is is_parquet


def test_local_file_without_bytes_is_not_parquet(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with Tails(open_location(tmp_path)) as tails:
        assert not tails.is_parquet("x")


def test_too_few_bytes_hold_no_footer_yet() -> None:
    data = file_of(SMALL)
    footer = footer_of(data)
    assert footer_in(data[-len(footer) - 8 :], len(data), "x", 10**6) == footer
    assert footer_in(data[-len(footer) - 7 :], len(data), "x", 10**6) is None
    assert footer_in(data[-8:], len(data), "x", 10**6) is None


def test_a_digest_is_of_the_footer_alone(tmp_path: Path) -> None:
    pq.write_table(SMALL, tmp_path / "x")
    footer = footer_of((tmp_path / "x").read_bytes())
    assert digest_of(footer) == hashlib.sha256(footer).hexdigest()[:32] != digest_of(footer + b"\x00")
