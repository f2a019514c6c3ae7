"""Tests of `write_dataset`, `make_reader` and `open_dataset`: round trips, and errors for bad files and arguments."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore import Unischema, UnischemaField
from petastore.codecs import CompressedImageCodec, NdarrayCodec, ScalarCodec
from petastore.errors import (
    DatasetChangedError,
    DatasetNotFoundError,
    DecodeError,
    EncodeError,
    InvalidArgumentError,
    MetadataError,
    SchemaError,
)

SCHEMA = Unischema(
    "frames",
    [
        UnischemaField("id", np.int32, (), ScalarCodec("int")),
        UnischemaField("name", np.str_, (), None, nullable=True),
        UnischemaField("pose", np.float32, (2, 3), NdarrayCodec()),
    ],
)


def rows(count: int) -> list[dict[str, Any]]:
    return [
        {"id": n, "name": None if n % 5 == 0 else f"n{n}", "pose": np.full((2, 3), n, np.float32)} for n in range(count)
    ]


@pytest.fixture
def url(tmp_path: Path) -> str:
    petastore.write_dataset(tmp_path / "data", SCHEMA, rows(25), rows_per_row_group=4)
    return str(tmp_path / "data")


def read_all(url: Any, **kwargs: Any) -> list[Any]:
    with petastore.make_reader(url, **kwargs) as reader:
        return list(reader)


def test_written_dataset_is_read_back(url: str) -> None:
    found = read_all(url, shuffle_row_groups=False)
    assert [int(row.id) for row in found] == list(range(25))
    assert [row.name for row in found] == [row["name"] for row in rows(25)]
    assert all((row.pose == row.id).all() and row.pose.shape == (2, 3) for row in found)
    dataset = petastore.open_dataset(url)
    assert dataset.schema == SCHEMA
    assert dataset.has_schema_document
    assert dataset.inventory.rows.tolist() == [4] * 6 + [1]


def test_row_and_batch_readers_decode_codecs(url: str) -> None:
    with petastore.make_batch_reader(url, shuffle_row_groups=False) as reader:
        batch = next(reader)
    assert batch.pose.shape == (4, 2, 3)
    assert batch.pose.dtype == np.float32


def test_schema_fields_accepts_an_iterator(url: str) -> None:
    found = read_all(url, schema_fields=iter(["id"]), filters=[("id", ">=", 23)], shuffle_row_groups=False)
    assert [row._asdict() for row in found] == [{"id": 23}, {"id": 24}]


def test_missing_path_raises(tmp_path: Path) -> None:
    for call in (petastore.make_reader, petastore.make_batch_reader, petastore.open_dataset):
        with pytest.raises(DatasetNotFoundError, match="nothing_here"):
            call(str(tmp_path / "nothing_here"))
    with pytest.raises(FileNotFoundError):
        petastore.make_reader(f"file://{tmp_path}/nothing_here")


def test_empty_directory_raises(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match=str(tmp_path)):
        petastore.make_reader(str(tmp_path))


def test_file_that_is_not_parquet_raises_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "part-0.parquet").write_text("id,name\n1,one\n" * 100)
    with pytest.raises(MetadataError, match=r"part-0\.parquet"):
        petastore.make_reader(str(tmp_path))


@pytest.mark.parametrize("keep", [1, 3, 100, -1, -9])
def test_truncated_file_raises_with_its_name(tmp_path: Path, keep: int) -> None:
    whole = tmp_path / "whole"
    pq.write_table(pa.table({"id": range(1000)}), whole)
    directory = tmp_path / "data"
    directory.mkdir()
    (directory / "part-0.parquet").write_bytes(whole.read_bytes()[:keep])
    with pytest.raises(MetadataError, match=r"part-0\.parquet"):
        petastore.make_reader(str(directory))


def test_damaged_page_raises_with_file_and_row_group(tmp_path: Path) -> None:
    path = tmp_path / "part-0.parquet"
    pq.write_table(pa.table({"id": np.random.RandomState(0).randint(0, 2**60, 10_000)}), path, compression="zstd")
    content = bytearray(path.read_bytes())
    content[4:64] = bytes([255]) * 60
    path.write_bytes(bytes(content))
    with pytest.raises(DecodeError, match=r"part-0\.parquet") as caught:
        read_all(str(tmp_path))
    assert (caught.value.file, caught.value.row_group) == ("part-0.parquet", 0)


def change_document(url: str, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the schema document of a dataset; the data files keep their rows, and the manifest is deleted."""
    common = Path(url) / "_common_metadata"
    stored = pq.read_schema(common)
    document = json.loads(stored.metadata[b"petastore.unischema"])
    change(document)
    metadata = {**stored.metadata, b"petastore.unischema": json.dumps(document).encode()}
    pq.write_metadata(stored.with_metadata(metadata), common)
    for file in (Path(url) / "_petastore").iterdir():
        file.unlink()
    for part in Path(url).glob("*.parquet"):
        pq.write_table(pq.read_table(part).replace_schema_metadata(None), part)


def test_footer_without_a_schema_column_raises(url: str) -> None:
    change_document(url, lambda document: document["fields"].append({**document["fields"][0], "name": "extra"}))
    with pytest.raises(SchemaError, match="'extra'"):
        petastore.make_reader(url)


def test_footer_with_a_wrong_column_type_raises(url: str) -> None:
    change_document(url, lambda document: document["fields"][1].update(dtype="int64"))
    with pytest.raises(SchemaError, match=r"'name'.*string"):
        petastore.make_reader(url)


def test_schema_of_a_newer_release_raises_with_the_release_needed(url: str) -> None:
    change_document(url, lambda document: document.update(version=99, needs="petastore 7.1"))
    with pytest.raises(MetadataError, match=r"version 99.*petastore 7\.1"):
        petastore.make_reader(url)


def test_cells_of_another_codec_raise_decode_error(url: str) -> None:
    change_document(url, lambda document: document["fields"][2].update(codec={"id": "compressed_ndarray"}))
    with pytest.raises(DecodeError, match="pose") as caught:
        read_all(url)
    assert (caught.value.column, caught.value.row_group, caught.value.row) == ("pose", 0, 0)


def test_cells_of_another_shape_raise_decode_error(url: str) -> None:
    change_document(url, lambda document: document["fields"][2].update(shape=[3, 2]))
    with pytest.raises(DecodeError, match=r"pose.*\(2, 3\)"):
        read_all(url)


def test_file_rewritten_after_the_commit_raises_dataset_changed_error(url: str) -> None:
    (part,) = Path(url).glob("*.parquet")
    pq.write_table(pq.read_table(part).slice(5), part, row_group_size=4)
    with pytest.raises(DatasetChangedError, match=part.name):
        read_all(url)


@pytest.mark.parametrize(
    ("cur_shard", "shard_count"), [(2, 2), (-1, 2), (0, 0), (5, 2), (0, None), (None, 2), (0.5, 2)]
)
def test_invalid_shards_raise(url: str, cur_shard: Any, shard_count: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"cur_shard|shard_count"):
        petastore.make_reader(url, cur_shard=cur_shard, shard_count=shard_count)


@pytest.mark.parametrize("fields", [["nam"], ["id", "x.*"], [UnischemaField("colour", "int32")], [], "id", [7], ["("]])
def test_schema_fields_without_a_match_raise(url: str, fields: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        petastore.make_reader(url, schema_fields=fields)


def test_unknown_field_raises_and_lists_existing_fields(url: str) -> None:
    said = r"^schema_fields must .* \('id', 'name', 'pose'\), got 'nam'\. Did you mean 'name'\?$"
    with pytest.raises(InvalidArgumentError, match=said):
        petastore.make_reader(url, schema_fields=["nam"])


def test_selected_fields_keep_the_order_of_the_schema(url: str) -> None:
    for fields in (["pose", "id"], [SCHEMA.pose, SCHEMA.id], ["p.*", "i.", "id"]):
        with petastore.make_reader(url, schema_fields=fields) as reader:
            assert next(reader)._fields == ("id", "pose")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_epochs": 0}, "num_epochs"),
        ({"num_epochs": 1.5}, "num_epochs"),
        ({"last_batch": "cut"}, "last_batch"),
        ({"seed": "x"}, "seed"),
        ({"workers_count": 0}, "workers_count"),
        ({"reader_pool_type": "fibre"}, "reader_pool_type"),
        ({"interleave": 0}, "interleave"),
        ({"shuffle_block_rows": 0, "shuffle_rows": True}, "shuffle_block_rows"),
        ({"shuffle_buffer_bytes": 0}, "shuffle_buffer_bytes"),
    ],
)
def test_invalid_arguments_raise_with_their_names(url: str, arguments: dict[str, Any], message: str) -> None:
    for call in (petastore.make_reader, petastore.make_batch_reader):
        with pytest.raises(InvalidArgumentError, match=message):
            call(url, **arguments)


@pytest.mark.parametrize("url", [None, 7, "", [], [None]])
def test_invalid_url_raises(url: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        petastore.make_reader(url)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("pose", np.zeros((3, 2), np.float32), r"pose.*\(2, 3\).*\(3, 2\)"),
        ("pose", np.zeros((2, 3), np.float64), r"pose.*float64.*float32"),
        ("pose", None, "pose"),
        ("id", 3.7, "id"),
        ("id", 2**40, "id"),
        ("id", "seven", "id"),
        ("name", 7, "name"),
    ],
)
def test_invalid_value_raises_and_leaves_no_dataset(tmp_path: Path, name: str, value: Any, message: str) -> None:
    given = rows(30)
    given[17][name] = value
    with pytest.raises(EncodeError, match=message) as caught:
        petastore.write_dataset(tmp_path / "data", SCHEMA, given, rows_per_row_group=4)
    assert (caught.value.column, caught.value.row) == (name, 17)
    with pytest.raises(DatasetNotFoundError):
        petastore.make_reader(str(tmp_path / "data"))


def test_unsupported_codec_raises_when_the_field_is_declared() -> None:
    with pytest.raises(SchemaError, match="image"):
        UnischemaField("image", np.float32, (8, 8), CompressedImageCodec("png"))


def test_files_missing_in_the_manifest_warn_and_are_not_read(url: str) -> None:
    (part,) = Path(url).glob("*.parquet")
    stranger = part.with_name("part-stranger.parquet")
    stranger.write_bytes(part.read_bytes())
    with pytest.warns(UserWarning, match="part-stranger.*petastore generate-metadata.*petastore migrate"):
        found = read_all(url)
    assert len(found) == 25


def test_single_file_of_a_dataset_is_read_with_its_schema(url: str) -> None:
    (part,) = Path(url).glob("*.parquet")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert petastore.open_dataset(str(part)).schema == SCHEMA
        assert len(read_all(str(part))) == 25


def test_in_memory_filesystem_dataset_is_read(tmp_path: Path) -> None:
    petastore.write_dataset("memory://front/data", SCHEMA, rows(9), rows_per_row_group=2)
    assert sorted(int(row.id) for row in read_all("memory://front/data", cur_shard=0, shard_count=1)) == list(range(9))


def test_public_names_of_petastore_are_sorted_and_unknown_names_raise() -> None:
    assert sorted(petastore.__all__) == petastore.__all__
    for name in petastore.__all__:
        assert getattr(petastore, name).__name__ == name
    with pytest.raises(AttributeError, match="make_coffee"):
        petastore.make_coffee  # noqa: B018
