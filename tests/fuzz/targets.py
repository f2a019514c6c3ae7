"""Fuzz targets: readers of untrusted bytes, with seeds. A result other than a value or a `PetastoreError` is a bug."""

from __future__ import annotations

import hashlib
import io
import pickle
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import petastore
from petastore import UnischemaField
from petastore.cache.entry_file import DamagedEntryError, digest_of, map_entry, write_entry
from petastore.codecs import CompressedImageCodec, CompressedNdarrayCodec, NdarrayCodec
from petastore.codecs.registry import codec_from_json
from petastore.errors import PetastoreError
from petastore.indexers import SingleFieldIndexer
from petastore.schema.document import DOCUMENT_KEY, parse_document
from petastore.selecting.remembered import read_selection_file, selection_bytes
from petastore.selectors import SingleIndexSelector
from petastore.storage.files.whole_files import SEAL_KEY
from petastore.storage.metadata.petastorm_index import petastorm_indexes
from petastore.storage.metadata.petastorm_schema import petastorm_document

__all__ = ["TARGETS", "Target", "outcome"]

_MOST_BYTES = 1 << 20


class Target(NamedTuple):
    """A reader of bytes, with its seed inputs."""

    seeds: list[bytes]
    """Valid inputs, which the fuzzer mutates."""

    read: Callable[[bytes], object]
    """Function that reads one input."""


def _folder() -> Path:
    folder = Path(tempfile.mkdtemp())
    rows = {"id": list(range(20)), "word": ["a", "b"] * 10, "x": np.arange(40.0).reshape(20, 2)}
    indexers = [SingleFieldIndexer("by_word", "word")]
    petastore.write_dataset(folder / "data", rows, rows_per_row_group=5, indexers=indexers)
    return folder


def _footer() -> Target:
    folder, seeds = _folder(), []
    nested = {"s": [{"a": 1, "b": [1, None]}, None], "d": pa.array(["x", None]).dictionary_encode()}
    for table in (pa.table({"id": [1, 2], "t": ["a", None]}), pa.table(nested)):
        sink = io.BytesIO()
        pq.write_table(table, sink, row_group_size=1)
        seeds.append(sink.getvalue())
    path = folder / "plain" / "x.parquet"
    path.parent.mkdir()

    def read(data: bytes) -> object:
        path.write_bytes(data)
        dataset = petastore.open_dataset(path.parent)
        return petastore.select_rows(dataset, filters=[("id", ">", 1)], filter_cache=False)

    return Target(seeds, read)


def _file(pattern: str, read: Callable[[Path], object]) -> Target:
    """Return a target that reads a dataset in which the content of one file is replaced."""
    data = _folder() / "data"
    (path,) = data.glob(pattern)
    seeds = [path.read_bytes(), path.read_bytes().replace(SEAL_KEY.encode(), b"x" * len(SEAL_KEY))]

    def read_data(content: bytes) -> object:
        path.write_bytes(content)
        return read(data)

    return Target(seeds, read_data)


def _manifest() -> Target:
    return _file("_petastore/inventory.arrow", petastore.open_dataset)


def _index() -> Target:
    def read(data: Path) -> object:
        selector = SingleIndexSelector("by_word", ["a"])
        with petastore.make_reader(data, rowgroup_selector=selector) as reader:
            return reader.plan

    return _file("_petastore/**/by_word*", read)


def _selection() -> Target:
    folder, rows = _folder(), np.full(4, 5)
    dataset = petastore.open_dataset(folder / "data")
    selection = petastore.select_rows(dataset, filters=[("id", "in", [1, 3, 7])], filter_cache=False)
    assert selection is not None
    data = selection_bytes("key", selection, rows)
    begin = data.index(b"{")
    start = data[: begin - 65]

    def read(content: bytes) -> object:
        digest = hashlib.sha256(content).hexdigest().encode()
        (folder / "selection").write_bytes(start + digest + b"\n" + content)
        return read_selection_file(folder / "selection", "key", rows)

    return Target([data[begin:]], read)


def _cells(field: UnischemaField, values: list[Any]) -> Target:
    codec = field.codec
    assert codec is not None
    seeds = codec.encode_column(values, field).to_pylist()

    def read(data: bytes) -> object:
        path = folder / "x.parquet"
        pq.write_table(pa.table({field.name: pa.array([data], pa.binary())}, schema=stored), path)
        return list(petastore.open_dataset(folder).head())

    folder = Path(tempfile.mkdtemp())
    petastore.write_dataset(folder / "made", petastore.Unischema("s", [field]), [{field.name: values[0]}])
    stored = pq.read_schema(next((folder / "made").glob("*.parquet")))
    document = pq.read_schema(folder / "made" / "_common_metadata").metadata[DOCUMENT_KEY.encode()]
    shutil.rmtree(folder / "made")
    pq.write_metadata(stored.with_metadata({DOCUMENT_KEY: document}), folder / "_common_metadata")
    return Target(seeds, read)


def _npy() -> Target:
    field = UnischemaField("x", "float32", (None, None), NdarrayCodec())
    return _cells(field, [np.ones((2, 3), "float32"), np.ones((0, 1), "float32")])


def _npz() -> Target:
    return _cells(UnischemaField("x", "int64", (None,), CompressedNdarrayCodec()), [np.arange(5), np.arange(0)])


def _image(kind: Literal["png", "jpeg"]) -> Target:
    field = UnischemaField("x", "uint8", (None, None, 3), CompressedImageCodec(kind))
    return _cells(field, [np.zeros((4, 5, 3), "uint8"), np.arange(192, dtype="uint8").reshape(8, 8, 3)])


def _document() -> Target:
    data = _folder() / "data"
    document = pq.read_schema(data / "_common_metadata").metadata[DOCUMENT_KEY.encode()]

    def read(content: bytes) -> object:
        text = content.decode("utf-8", "replace")
        return parse_document(text, source="here", codec_from_json=codec_from_json)

    return Target([document], read)


_SCHEMA = (
    b"ccopy_reg\n_reconstructor\n(cpetastorm.unischema\nUnischema\nc__builtin__\nobject\nNtR"
    b"(dS'_name'\nS'user'\nsS'_fields'\nccollections\nOrderedDict\n((l(lS'id'\na"
    b"cpetastorm.unischema\nUnischemaField\n(S'id'\ncnumpy\nint64\n(tNI00\ntRaatRsb."
)
_INDEX = (
    b"(dS'seen'\nccopy_reg\n_reconstructor\n(cpetastorm.etl.rowgroup_indexers\nFieldNotNullIndexer\n"
    b"c__builtin__\nobject\nNtR(dS'_index_name'\nS'seen'\nsS'_column_name'\nS'id'\nsS'_index_data'\n"
    b"c__builtin__\nset\n((lI3\naI5\natRsbs."
)
_PROTOCOLS = [pickle.dumps({"a": [1, (2.5, "x"), {b"y"}], 3: None}, protocol) for protocol in range(6)]


def _pickled_schema() -> Target:
    return Target([_SCHEMA, *_PROTOCOLS], lambda data: petastorm_document(data, pa.schema([]), source="here"))


def _pickled_index() -> Target:
    return Target([_INDEX, *_PROTOCOLS], lambda data: petastorm_indexes(data, source="here"))


def _cache() -> Target:
    path, digest = _folder() / "entry", digest_of("key")
    with path.open("wb") as file:
        write_entry(file.fileno(), digest, 0, memoryview(bytes(100)))

    def read(data: bytes) -> object:
        path.write_bytes(data)
        try:
            entry = map_entry(path, digest, _MOST_BYTES)
        except DamagedEntryError as problem:
            return problem
        assert entry is not None
        entry.close()
        return None

    return Target([path.read_bytes()], read)


TARGETS: dict[str, Callable[[], Target]] = {
    "footer": _footer,
    "manifest": _manifest,
    "index": _index,
    "selection": _selection,
    "npy": _npy,
    "npz": _npz,
    "png": lambda: _image("png"),
    "jpeg": lambda: _image("jpeg"),
    "document": _document,
    "pickled-schema": _pickled_schema,
    "pickled-index": _pickled_index,
    "cache": _cache,
}


def outcome(target: Target, data: bytes) -> object:
    """Return the value that an input is read as, or its `PetastoreError`."""
    try:
        return target.read(data)
    except PetastoreError as problem:
        return problem
