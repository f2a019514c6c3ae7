"""Tests of Delta, Iceberg and Hudi tables: folders are rejected, and files listed by the table's own API are read."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from pyarrow import fs

from petastore import Unischema, UnischemaField, make_reader, open_dataset, write_dataset
from petastore.errors import InvalidArgumentError
from petastore.storage.files.location import Location
from petastore.writers.generate import generate_metadata
from tests.storage.conftest import Put

SCHEMA = Unischema("id", [UnischemaField("id", "int64")])
MARKERS = {
    "Delta": "_delta_log/00000000000000000000.json",
    "Iceberg": "metadata/00000-a.metadata.json",
    "Hudi": ".hoodie/hoodie.properties",
}


def parquet(*ids: int) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table({"id": list(ids)}), file)
    return file.getvalue()


def urls_of(location: Location, *paths: str) -> list[str]:
    return [f"{location.url}/{path}" if path else location.url for path in paths]


def rejected(urls: str | list[str], table_format: str) -> None:
    with pytest.raises(
        InvalidArgumentError, match=rf"must be a folder of plain Parquet files, got .* {table_format} table"
    ):
        open_dataset(urls)


@pytest.mark.parametrize("table_format", MARKERS)
@pytest.mark.parametrize("folder", ["", "data", "data/day=1", "data/*.parquet", "*/day=1", "**/*.parquet"])
def test_lake_table_is_rejected_at_every_depth(location: Location, put: Put, table_format: str, folder: str) -> None:
    put(MARKERS[table_format], b"{}")
    put("data/a.parquet", parquet(1))
    put("data/day=1/a.parquet", parquet(2))
    rejected(urls_of(location, folder)[0], table_format)


@pytest.mark.parametrize("table_format", MARKERS)
def test_folder_that_contains_a_lake_table_is_rejected(location: Location, put: Put, table_format: str) -> None:
    put("plain/a.parquet", parquet(1))
    put("table/" + MARKERS[table_format], b"{}")
    put("table/data/a.parquet", parquet(2))
    rejected(location.url, table_format)
    rejected(urls_of(location, "plain", "table/data"), table_format)
    assert open_dataset(urls_of(location, "plain")[0]).inventory.num_rows == 1


@pytest.mark.parametrize("table_format", MARKERS)
def test_named_files_of_a_lake_table_are_read(location: Location, put: Put, table_format: str) -> None:
    put(MARKERS[table_format], b"{}")
    for number in range(3):
        put(f"data/{number}.parquet", parquet(number))
    for numbers in ([1], [0, 2]):
        with make_reader(urls_of(location, *(f"data/{number}.parquet" for number in numbers))) as reader:
            assert sorted(row.id for row in reader) == numbers


def test_iceberg_table_with_compressed_metadata_is_rejected(location: Location, put: Put) -> None:
    put("metadata/00000-a.gz.metadata.json", b"{}")
    put("data/a.parquet", parquet(1))
    for folder in ("", "data"):
        rejected(urls_of(location, folder)[0], "Iceberg")


def test_hudi_partition_is_rejected_without_the_table_root(location: Location, put: Put) -> None:
    put("2020/01/.hoodie_partition_metadata", b"commitTime=1")
    put("2020/01/a.parquet", parquet(1))
    rejected(location.url, "Hudi")


def test_folder_with_similar_names_as_a_lake_table_is_read(location: Location, put: Put) -> None:
    put("data/a.parquet", parquet(1))
    put("data/_old/_delta_log/0.json", b"{}")
    put("metadata/labels.json", b"{}")
    assert open_dataset(urls_of(location, "data")[0]).inventory.num_rows == 1


def test_lake_table_message_has_the_call_for_its_current_files(tmp_path: Path) -> None:
    (tmp_path / "t/_delta_log").mkdir(parents=True)
    (tmp_path / "t/part-0.parquet").write_bytes(parquet(1))
    with pytest.raises(InvalidArgumentError) as caught:
        make_reader(str(tmp_path / "t"))
    assert str(caught.value).endswith(f"deltalake.DeltaTable('file://{tmp_path}/t').file_uris()")


def test_lake_table_is_rejected_through_a_link_to_its_folder(tmp_path: Path) -> None:
    (tmp_path / "t/_delta_log").mkdir(parents=True)
    (tmp_path / "t/day=1").mkdir()
    (tmp_path / "t/day=1/part-0.parquet").write_bytes(parquet(1))
    (tmp_path / "today").symlink_to(tmp_path / "t/day=1")
    rejected(str(tmp_path / "today"), "Delta")


def test_lake_table_is_rejected_in_a_given_file_system(tmp_path: Path) -> None:
    (tmp_path / "t/_delta_log").mkdir(parents=True)
    (tmp_path / "t/day=1").mkdir()
    (tmp_path / "t/day=1/part-0.parquet").write_bytes(parquet(1))
    for filesystem in (fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), fs.LocalFileSystem()):
        home = "" if isinstance(filesystem, fs.SubTreeFileSystem) else f"{tmp_path}/"
        with pytest.raises(InvalidArgumentError, match="Delta"):
            open_dataset(f"{home}t/day=1", filesystem=filesystem)


def test_lake_table_check_skips_parent_directories_without_permission(location: Location, put: Put) -> None:
    class Guarded(MemoryFileSystem):  # type: ignore[misc]
        protocol = "guarded"
        cachable = False

        def info(self, path: str, **kwargs: object) -> dict[str, object]:
            if "/mine" not in path:
                raise PermissionError(13, "denied")
            return dict(super().info(path, **kwargs))

    guarded = Guarded()
    guarded.pipe_file("/bucket/guarded/mine/data/a.parquet", parquet(1))
    try:
        assert open_dataset("/bucket/guarded/mine/data", filesystem=guarded).inventory.num_rows == 1
        guarded.pipe_file("/bucket/guarded/mine/_delta_log/0.json", b"{}")
        with pytest.raises(InvalidArgumentError, match="Delta"):
            open_dataset("/bucket/guarded/mine/data", filesystem=guarded)
    finally:
        guarded.rm("/bucket/guarded", recursive=True)


@pytest.mark.parametrize("table_format", MARKERS)
def test_write_dataset_rejects_a_lake_table(tmp_path: Path, table_format: str) -> None:
    marker = tmp_path / MARKERS[table_format]
    marker.parent.mkdir()
    marker.write_bytes(b"{}")
    (tmp_path / "part-0.parquet").write_bytes(parquet(1))
    for mode in ("append", "overwrite"):
        with pytest.raises(InvalidArgumentError, match=table_format):
            write_dataset(str(tmp_path), SCHEMA, [{"id": 1}], mode=mode)
    with pytest.raises(InvalidArgumentError, match=table_format):
        generate_metadata(str(tmp_path))
    assert (tmp_path / "part-0.parquet").exists()


def test_petastore_dataset_that_became_a_delta_table_is_rejected(tmp_path: Path) -> None:
    write_dataset(str(tmp_path), SCHEMA, [{"id": 1}])
    (tmp_path / "_delta_log").mkdir()
    rejected(str(tmp_path), "Delta")
