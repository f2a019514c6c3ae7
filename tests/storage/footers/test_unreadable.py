"""Tests of unreadable columns: selecting one raises with the reason, and the other columns are read."""

from __future__ import annotations

import base64
import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

import petastore
from petastore.errors import MetadataError, SchemaError


class Keys(pe.KmsClient):  # type: ignore[misc]
    """A key service that returns its keys unencrypted."""

    def __init__(self, _: Any) -> None:
        pe.KmsClient.__init__(self)

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        return base64.b64encode(master_key_identifier.encode() + key_bytes)

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        return base64.b64decode(wrapped_key)[len(master_key_identifier) :]


TABLE = pa.table(
    {
        "id": pa.array(range(10), pa.int64()),
        "secret": pa.array([f"s{n}" for n in range(10)]),
        "place": pa.array([{"x": n, "y": -n} for n in range(10)]),
    }
)


def write_encrypted(path: Path, columns: dict[str, list[str]], *, plaintext_footer: bool = True) -> None:
    config = pe.EncryptionConfiguration(
        footer_key="footer", column_keys=columns, plaintext_footer=plaintext_footer, cache_lifetime=dt.timedelta(0)
    )
    properties = pe.CryptoFactory(Keys).file_encryption_properties(pe.KmsConnectionConfig(), config)
    with pq.ParquetWriter(path, TABLE.schema, encryption_properties=properties) as writer:
        writer.write_table(TABLE, row_group_size=4)


def read(url: Path, columns: list[str] | None = None, **asked: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    with petastore.make_batch_reader(str(url), columns, shuffle_row_groups=False, **asked) as reader:
        for batch in reader:
            for name, values in zip(reader.schema.fields, batch, strict=True):
                found.setdefault(name, []).extend(values.tolist())
    return found


@pytest.mark.parametrize("make", [petastore.make_batch_reader, petastore.make_reader])
def test_encrypted_column_raises_only_when_selected(tmp_path: Path, make: Any) -> None:
    write_encrypted(tmp_path / "a.parquet", {"key": ["secret"]})
    with pytest.raises(SchemaError, match=r"column 'secret' of a\.parquet is encrypted.*schema_fields.*'id', 'place'"):
        make(str(tmp_path))
    with pytest.raises(SchemaError, match=r"'secret' of a\.parquet is encrypted"):
        make(str(tmp_path), ["id", "secret"])
    assert read(tmp_path, ["id", "place"]) == TABLE.select(["id", "place"]).to_pydict()
    assert read(tmp_path, ["i."]) == {"id": list(range(10))}
    assert petastore.open_dataset(tmp_path).unreadable.keys() == {"secret"}


def test_struct_with_an_encrypted_member_is_unreadable(tmp_path: Path) -> None:
    write_encrypted(tmp_path / "a.parquet", {"key": ["place.y"]})
    assert petastore.open_dataset(tmp_path).unreadable.keys() == {"place"}
    assert read(tmp_path, ["id", "secret"]) == TABLE.select(["id", "secret"]).to_pydict()


def test_column_encrypted_in_one_file_is_unreadable(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet")
    write_encrypted(tmp_path / "b.parquet", {"key": ["secret"]})
    with pytest.raises(SchemaError, match=r"'secret' of b\.parquet is encrypted"):
        petastore.make_reader(str(tmp_path))
    assert read(tmp_path, ["id"]) == {"id": [*range(10), *range(10)]}


def test_encrypted_footer_raises(tmp_path: Path) -> None:
    write_encrypted(tmp_path / "a.parquet", {"key": ["secret"]}, plaintext_footer=False)
    with pytest.raises(MetadataError, match=r"a\.parquet must not be encrypted, got an encrypted footer"):
        petastore.open_dataset(tmp_path)


def test_duplicate_columns_are_read_by_position(tmp_path: Path) -> None:
    columns = [pa.array([1, 5]), pa.array([{"c": 2}, None]), pa.array([3, 6]), pa.array(["x", "y"]), pa.array([7, 8])]
    table = pa.Table.from_arrays(columns, names=["a", "b", "a", "a", "a_1"])
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=1)
    whole = {"a": [1, 5], "b": [{"c": 2}, None], "a_2": [3, 6], "a_3": ["x", "y"], "a_1": [7, 8]}
    assert read(tmp_path) == whole
    whole["b.c"] = [2, None]
    for names in (["a_2"], ["a"], ["a_3", "a"], ["a_1", "b.c"], ["b.c", "a_2"], list(whole)):
        assert read(tmp_path, names) == {name: values for name, values in whole.items() if name in names}
    assert read(tmp_path, ["a_1"], filters=petastore.col("a_2") == 6, filter_cache=False) == {"a_1": [8]}
    assert read(tmp_path, ["a_1"], filters=petastore.col("a_3") == "x", filter_cache=False) == {"a_1": [7]}


def test_duplicate_columns_of_some_files_are_null_in_others(tmp_path: Path) -> None:
    names = ["id", "a", "a"]
    pq.write_table(
        pa.Table.from_arrays([pa.array([0]), pa.array([1]), pa.array([2])], names=names), tmp_path / "0.parquet"
    )
    pq.write_table(pa.table({"id": [1], "a": [3]}), tmp_path / "1.parquet")
    assert read(tmp_path) == {"id": [0, 1], "a": [1, 3], "a_1": [2, None]}


def test_column_without_a_name_is_read(tmp_path: Path) -> None:
    """The index of a CSV export has an empty name, which pandas and pyarrow read."""
    pq.write_table(pa.table({"": [1, 2], "b": [3, 4]}), tmp_path / "x.parquet")
    assert read(tmp_path) == {"": [1, 2], "b": [3, 4]}
    assert read(tmp_path, [""]) == {"": [1, 2]}
    with petastore.make_reader(str(tmp_path), filters=petastore.col("") > 1, filter_cache=False) as reader:
        assert [row._asdict() for row in reader] == [{"": 2, "b": 4}]
    petastore.write_dataset(str(tmp_path / "own"), {"": np.arange(3)})
    assert read(tmp_path / "own") == {"": [0, 1, 2]}


def test_struct_with_duplicate_members_raises_when_selected(tmp_path: Path) -> None:
    doubled = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["m", "m"])
    lists = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), doubled)
    pq.write_table(pa.table({"x": lists, "b": [2]}), tmp_path / "x.parquet")
    with pytest.raises(SchemaError, match=r"column 'x': members of a struct must have distinct names, .*'m', 'm'"):
        petastore.make_batch_reader(str(tmp_path))
    assert read(tmp_path, ["b"]) == {"b": [2]}


def changed(data: bytes, *texts: tuple[bytes, bytes]) -> bytes:
    """Return the file with some byte strings of its footer replaced."""
    length = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - length : -8]
    for old, new in texts:
        assert old in footer
        footer = footer.replace(old, new)
    return data[: -8 - length] + footer + len(footer).to_bytes(4, "little") + data[-4:]


def written(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, store_schema=False)
    return bytes(sink.getvalue())


def test_writer_name_that_is_not_utf_8_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(
        changed(written(pa.table({"a": [1]})), (b"parquet-cpp", b"parquet\xff\xfe\xfd\xfc"))
    )
    assert petastore.open_dataset(tmp_path).writer == "a writer whose name is not UTF-8"
    assert read(tmp_path) == {"a": [1]}


def test_column_name_that_is_not_utf_8_raises(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(changed(written(pa.table({"abcd": [1]})), (b"abcd", b"ab\xff\xfe")))
    with pytest.raises(MetadataError, match=r"x\.parquet: column names must be UTF-8"):
        petastore.open_dataset(tmp_path)


def test_struct_member_that_is_not_utf_8_raises_when_selected(
    tmp_path: Path,
) -> None:
    table = pa.table({"x": [{"abcd": 1}], "b": [2]})
    (tmp_path / "x.parquet").write_bytes(changed(written(table), (b"abcd", b"ab\xff\xfe")))
    with pytest.raises(SchemaError, match="column 'x': the names of a struct's members must be UTF-8 text"):
        petastore.make_batch_reader(str(tmp_path))
    assert read(tmp_path, ["b"]) == {"b": [2]}


def test_nested_text_beyond_arrows_limit_raises_before_reading(tmp_path: Path) -> None:
    lists = pa.array([["x" * 1_000_000]])
    data = written(pa.table({"words": lists, "word": lists.flatten(), "id": [7]}))
    group = pq.read_metadata(pa.BufferReader(data)).row_group(0)
    size = group.column(0).total_uncompressed_size
    assert size not in (group.column(1).total_uncompressed_size, group.column(2).total_uncompressed_size)
    (tmp_path / "fits.parquet").write_bytes(data)
    assert read(tmp_path, ["words"]) == {"words": lists.to_pylist()}
    (tmp_path / "fits.parquet").unlink()
    # The footer claims 2 GiB of text, because reading that much takes half a minute and twice the memory.
    claimed = changed(data, (_number(size), _number(2**31 + 9)), (_number(group.total_byte_size), _number(2**31 + 99)))
    (tmp_path / "x.parquet").write_bytes(claimed)
    with pytest.raises(SchemaError, match=r"column 'words' of x\.parquet has some 2,147,483,649 bytes of text inside"):
        petastore.make_reader(str(tmp_path))
    assert read(tmp_path, ["id"]) == {"id": [7]}


def _number(value: int) -> bytes:
    """Return a number as encoded in the footer: zigzag, seven bits per byte."""
    value, found = 2 * value, bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])
