"""Tests of `open_dataset`: files listed several times, listing caches, unreadable columns, and damaged metadata."""

from __future__ import annotations

import collections
import itertools
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractFileSystem

import petastore
from petastore import NGram, Unischema, UnischemaField
from petastore.adapters.torch import DataLoader, MapDataset
from petastore.codecs import ScalarCodec
from petastore.errors import DatasetChangedError, InvalidArgumentError, MetadataError, SchemaError
from petastore.schema.document import DOCUMENT_KEY, dump_document
from tests.servers.fault_proxy import FaultProxy
from tests.servers.fixtures import Served

SCHEMA = Unischema("numbers", [UnischemaField("id", np.int64), UnischemaField("half", np.float32)])
ROWS = 20


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Write two files of ten rows each, in row groups of three, and return their paths."""
    rows = [{"id": number, "half": number / 2} for number in range(ROWS)]
    petastore.write_dataset(str(tmp_path / "set"), SCHEMA, rows, rows_per_file=10, rows_per_row_group=3)
    return sorted(str(path) for path in (tmp_path / "set").glob("*.parquet"))


def ids_of(batches: Any) -> collections.Counter[int]:
    return collections.Counter(int(number) for batch in batches for number in np.ravel(batch["id"]))


def expected(*ranges: range) -> collections.Counter[int]:
    return collections.Counter(number for numbers in ranges for number in numbers)


THRICE = expected(range(10), range(10), range(10), range(10, 20))


@pytest.mark.parametrize("shuffle", [False, True])
def test_file_listed_three_times_is_read_three_times(files: list[str], shuffle: bool) -> None:
    first, second = files
    for urls in ([first, second, first, first], [first, first, first, second]):
        with petastore.make_reader(urls, shuffle_rows=shuffle, num_epochs=2) as reader:
            assert (reader.num_rows, len(reader)) == (40, 80)
            epochs = DataLoader(reader, batch_size=7)
            found = ids_of(epochs)
        assert found == THRICE + THRICE


def test_single_file_can_be_listed_twice(files: list[str]) -> None:
    with petastore.make_batch_reader([files[0]] * 2, shuffle_row_groups=False) as reader:
        found = [int(number) for batch in reader for number in batch.id]
    assert found == [*range(10), *range(10)]


def test_glob_pattern_listed_twice_is_read_twice(files: list[str]) -> None:
    pattern = str(Path(files[0]).parent / "*.parquet")
    with petastore.make_reader([pattern, pattern]) as reader:
        assert ids_of(DataLoader(reader, batch_size=5)) == expected(range(20), range(20))


def test_ranks_share_files_that_are_listed_twice(files: list[str]) -> None:
    shares = []
    for rank in range(2):
        with petastore.make_reader([files[0], *files], cur_shard=rank, shard_count=2, shuffle_rows=True) as reader:
            shares.append(ids_of(DataLoader(reader, batch_size=4)))
    assert [share.total() for share in shares] == [15, 15]
    assert shares[0] + shares[1] == expected(range(10), range(20))


def test_filter_and_random_access_include_repeated_files(files: list[str]) -> None:
    with petastore.make_reader([files[0], *files], filters=petastore.col("id") > 7) as reader:
        assert ids_of(DataLoader(reader, batch_size=4)) == expected(range(8, 10), range(8, 20))
    rows = MapDataset([files[0], *files])
    assert len(rows) == 30
    assert [int(rows[number]["id"]) for number in (0, 9, 10, 19, 20, 29)] == [0, 9, 0, 9, 10, 19]


def test_state_resumes_a_dataset_with_a_file_listed_twice(files: list[str]) -> None:
    urls = [files[0], *files]
    with petastore.make_reader(urls, shuffle_rows=True, seed=3) as reader:
        loader = DataLoader(reader, batch_size=4)
        before = ids_of(itertools.islice(loader, 3))
        state = loader.state_dict()
    with petastore.make_reader(urls, shuffle_rows=True, seed=3) as reader:
        loader = DataLoader(reader, batch_size=4)
        loader.load_state_dict(state)
        after = ids_of(loader)
    assert before + after == expected(range(10), range(20))


def test_windows_do_not_span_two_occurrences_of_a_file(files: list[str]) -> None:
    ngram = NGram({0: ["id"], 1: ["id"]}, delta_threshold=1, timestamp_field="id")
    with petastore.make_reader([files[0]] * 2, schema_fields=ngram, shuffle_row_groups=False) as reader:
        found = [(int(window[0].id), int(window[1].id)) for window in reader]
    assert found == [(number, number + 1) for number in range(9)] * 2


@pytest.mark.server
@pytest.mark.leaves_running("fsspec keeps its web session")
@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("count", [400, 40_000], ids=["small files", "fetched ahead"])
def test_remote_files_can_be_listed_several_times(
    served: Served, proxy: FaultProxy, tmp_path: Path, keeps: bool, count: int
) -> None:
    folder, halves = uuid.uuid4().hex, np.random.RandomState(0).rand(count, 16)
    schema = Unischema("far", [UnischemaField("id", np.int64), UnischemaField("x", np.float64, (16,))])
    columns = {"id": np.arange(count), "x": halves}
    url = str(served.root / folder)
    petastore.write_dataset(url, schema, columns, rows_per_file=count // 2, rows_per_row_group=count // 10)
    first, second = (f"{proxy.url}/{folder}/{path.name}" for path in sorted(Path(url).glob("*.parquet")))
    kept: Any = {"cache_type": "local-disk", "cache_location": str(tmp_path / "cache"), "cache_size_limit": 1 << 28}
    found = collections.Counter[int]()
    with petastore.make_batch_reader(
        [first, second, first], shuffle_rows=True, num_epochs=2, **kept if keeps else {}
    ) as reader:
        for batch in DataLoader(reader, batch_size=97):
            ids = batch["id"].numpy()
            np.testing.assert_array_equal(batch["x"].numpy(), halves[ids])
            found.update(ids.tolist())
    once, twice = range(count // 2, count), range(count // 2)
    assert found == collections.Counter({**dict.fromkeys(twice, 4), **dict.fromkeys(once, 2)})


class ListingCache(MemoryFileSystem):  # type: ignore[misc] # fsspec has no types
    """A filesystem whose listing cache never expires, as in fsspec's clients of object stores."""

    protocol = "cached"
    cachable = False
    find = AbstractFileSystem.find

    def info(self, path: str, **options: Any) -> Any:
        entries = [one for one in self._ls_from_cache(path) or () if one["name"] == path.rstrip("/")]
        return entries[0] if entries else super().info(path, **options)

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        if path not in self.dircache:
            self.dircache[path] = super().ls(path, detail=True, **options)
        return self.dircache[path] if detail else [one["name"] for one in self.dircache[path]]

    def invalidate_cache(self, path: str | None = None) -> None:
        """Remove all listings, or those of the directories above a path."""
        for listed in list(self.dircache):
            if path is None or f"{path}/".startswith(listed):
                del self.dircache[listed]


@pytest.fixture
def memory() -> Iterator[MemoryFileSystem]:
    """Yield a filesystem that writes where `ListingCache` reads."""
    memory = MemoryFileSystem()
    yield memory
    memory.rm("/appended", recursive=True)


@pytest.mark.parametrize("has_manifest", [False, True])
def test_rows_appended_elsewhere_are_read_despite_a_listing_cache(
    memory: MemoryFileSystem, has_manifest: bool, tmp_path: Path
) -> None:
    cached = ListingCache()
    for first, end in itertools.pairwise((0, 10, 20, 400)):
        rows = [{"id": number, "half": number / 2} for number in range(first, end)]
        if has_manifest:
            mode: Any = "append" if first else "error"
            petastore.write_dataset("/appended", SCHEMA, rows, mode=mode, filesystem=memory, rows_per_row_group=3)
        else:
            pq.write_table(pa.Table.from_pylist(rows), tmp_path / "file")
            memory.pipe_file(f"/appended/{end}.parquet", (tmp_path / "file").read_bytes())
        with petastore.make_batch_reader("/appended", filesystem=cached) as reader:
            assert ids_of(reader) == expected(range(end))


def test_directory_listed_twice_raises(files: list[str]) -> None:
    folder = str(Path(files[0]).parent)
    with pytest.raises(InvalidArgumentError, match=r"a whole dataset must be named once, got .* 2 times"):
        petastore.open_dataset([folder, folder])


def test_path_of_a_file_that_is_not_parquet_raises_with_advice(tmp_path: Path) -> None:
    for text, size in (("a", "1 byte"), ("a,b\n1,2\n", "8 bytes")):
        (tmp_path / "a.csv").write_text(text)
        with pytest.raises(MetadataError, match=rf"has only {size}\. Pass Parquet files, or a directory of") as refused:
            petastore.open_dataset(tmp_path / "a.csv")
        assert type(refused.value) is MetadataError


def test_unreadable_column_raises_only_when_selected(tmp_path: Path) -> None:
    """The schema document declares int32 for a column that is stored as text, as Petastorm could write it."""
    declared = Unischema("odd", [
        UnischemaField("id", np.int64), UnischemaField("count", np.str_, (), ScalarCodec("string")),
    ])  # fmt: skip
    document = dump_document(declared.name, declared).replace('"dtype":"str"', '"dtype":"int32"')
    assert '"int32"' in document
    table = pa.table({"id": [1, 2], "count": ["7", "8"]}, schema=pa.schema(
        [pa.field("id", pa.int64(), nullable=False), pa.field("count", pa.string(), nullable=False)],
        metadata={DOCUMENT_KEY: document},
    ))  # fmt: skip
    pq.write_table(table, tmp_path / "x.parquet")
    dataset = petastore.open_dataset(tmp_path)
    assert list(dataset.schema.fields) == ["id"]
    with petastore.make_reader(tmp_path, ["id"], shuffle_row_groups=False) as reader:
        assert [int(row.id) for row in reader] == [1, 2]
    for fields in (None, ["count"], ["id", "count"]):
        with pytest.raises(
            SchemaError,
            match=r"field 'count': int32 cannot be stored as 'string'.*set schema_fields to names among 'id'$",
        ):
            petastore.make_reader(tmp_path, fields)


def test_damaged_schema_document_raises(tmp_path: Path) -> None:
    declared = Unischema("one", [UnischemaField("id", np.int64, nullable=True)])
    document = dump_document(declared.name, declared).replace("true", "7")
    table = pa.table({"id": [1]}).replace_schema_metadata({DOCUMENT_KEY: document})
    pq.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(MetadataError, match=r"invalid field \{'name': 'id', .*: nullable must be true or false"):
        petastore.open_dataset(tmp_path)


def test_open_dataset_reads_common_metadata_of_fastparquet(tmp_path: Path) -> None:
    table = pa.table({"id": [1, 2]})
    pq.write_table(table, tmp_path / "part.0.parquet")
    pq.write_metadata(table.schema, tmp_path / "_common_metadata")
    footer = (tmp_path / "_common_metadata").read_bytes()
    counted = footer.replace(b"\x16\x00\x19\x0c", b"\x16\x04\x19\x0c")  # field 3 declares 2 rows, field 4 no row groups
    assert counted != footer
    (tmp_path / "_common_metadata").write_bytes(counted)
    assert petastore.open_dataset(tmp_path).inventory.num_rows == 2
    (tmp_path / "part.1.parquet").write_bytes(counted)
    with pytest.raises(
        MetadataError, match=r"part.1.parquet: the footer is damaged: it declares 2 rows, but 0 in the row groups"
    ):
        petastore.open_dataset(tmp_path)


@pytest.mark.parametrize("content", [b"", b"not Parquet", b"PAR1" + bytes(20) + b"PAR1"])
def test_broken_common_metadata_message_names_the_file_to_delete(tmp_path: Path, content: bytes) -> None:
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "a.parquet")
    (tmp_path / "_common_metadata").write_bytes(content)
    with pytest.raises(
        MetadataError,
        match=r"_common_metadata .*If another program .* wrote _common_metadata of file://.*, delete that file",
    ):
        petastore.open_dataset(tmp_path)
    (tmp_path / "_common_metadata").unlink()
    assert petastore.open_dataset(tmp_path).inventory.num_rows == 2


def test_error_for_a_rewritten_file_has_its_old_and_new_size(tmp_path: Path) -> None:
    for rows in ([1, 2], [1, 2, 3]):
        if len(rows) == 3:
            reader = petastore.make_reader(str(tmp_path), num_epochs=3)
        pq.write_table(pa.table({"id": rows}), tmp_path / "a.parquet")
    with reader, pytest.raises(DatasetChangedError, match=r"it had \d+ bytes, and has \d+ bytes\. Open the dataset"):
        list(reader)
