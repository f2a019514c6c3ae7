"""Metadata of Petastorm that was made to do harm: a clear error in little time and memory, and nothing is run."""

from __future__ import annotations

import builtins
import gc
import os
import pickle
import struct
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import petastore
from petastore.errors import MetadataError
from petastore.indexing import get_row_group_indexes
from petastore.interop import migrate
from petastore.storage.petastorm.petastorm_index import PETASTORM_INDEX_KEY, petastorm_indexes
from petastore.storage.petastorm.petastorm_schema import NAMES, PETASTORM_SCHEMA_KEY, petastorm_document
from tests.storage.petastorm.test_petastorm_index import VALUES, index_bytes
from tests.storage.petastorm.test_petastorm_schema import BARE, PLACES, schema_bytes
from tests.tier import examples

SECONDS = 10.0
MEBIBYTES = 128
COUNTS_KEY = b"dataset-toolkit.num_row_groups_per_file.v1"
WATCHED = (
    (os, "system"), (os, "popen"), (subprocess, "Popen"), (pickle, "loads"), (builtins, "eval"), (builtins, "exec"),
    (builtins, "__import__"), (builtins, "getattr"), (builtins, "open"),
)  # fmt: skip


def watched(read: Callable[[], Any]) -> Any:
    """What `read` gives, while whatever a pickle could do harm with is written down instead of done."""
    called, imported_by_others = list[str](), list[Any]()
    ours, modules, is_collecting = threading.get_ident(), set(sys.modules), gc.isenabled()
    real = [(module, name, getattr(module, name)) for module, name in WATCHED]

    def noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def note(*given: Any, **named: Any) -> Any:
            if threading.get_ident() != ours:  # what other tests have left to threads of libraries goes on
                imported_by_others.extend(given[:1] if name == "__import__" else ())
                return function(*given, **named)
            return _getattr(called, function, *given) if name == "getattr" else called.append(name)

        return note

    gc.disable()  # it may end what other tests have left, in this thread
    # By hand, because pytest's own patching imports; `getattr` goes on working, since our own code calls it.
    for module, name, function in real:
        setattr(module, name, noted(name, function))
    try:
        return read()
    finally:
        for module, name, function in real:
            setattr(module, name, function)
        if is_collecting:
            gc.enable()
        assert not called
        assert imported_by_others or set(sys.modules) == modules


def _getattr(called: list[str], real: Callable[..., Any], *given: Any) -> Any:
    if given[1:2] in (("system",), ("__globals__",), ("__subclasses__",)):
        called.append(f"getattr {given[1]}")
    return real(*given)


def schema_of(pickled: bytes) -> str:
    return petastorm_document(pickled, pa.schema([]), source="a test")


def indexes_of(pickled: bytes) -> Any:
    return petastorm_indexes(pickled, source="a test")


READERS = {"schema": schema_of, "index": indexes_of}


def refused(read: Callable[[bytes], Any], pickled: bytes) -> str:
    began = time.thread_time()
    with pytest.raises(MetadataError) as caught:
        watched(lambda: read(pickled))
    assert time.thread_time() - began < SECONDS
    message = str(caught.value)
    assert message.startswith("a test")
    assert len(message) < 2000
    return message


HARMFUL = {
    "os.system": b"cos\nsystem\n(S'touch harm'\ntR",
    "posix.system": b"cposix\nsystem\n(S'touch harm'\ntR",
    "eval": b"cbuiltins\neval\n(S'1'\ntR",
    "eval of Python 2": b"c__builtin__\neval\n(S'1'\ntR",
    "exec": b"cbuiltins\nexec\n(S'1'\ntR",
    "getattr": b"cbuiltins\ngetattr\n(cnumpy\nint64\nS'__class__'\ntR",
    "import": b"cbuiltins\n__import__\n(S'os'\ntR",
    "open": b"cbuiltins\nopen\n(S'harm'\nS'w'\ntR",
    "Popen": b"csubprocess\nPopen\n((lS'touch'\naS'harm'\natR",
    "loads": b"cpickle\nloads\n(S'.'\ntR",
    "a chain to system": b"cbuiltins\ngetattr\n(cbuiltins\n__import__\n(S'os'\ntRS'system'\ntR(S'touch harm'\ntR",
    "a name in a name": b"cnumpy\nint64.__class__\n",
    "numpy.load": b"cnumpy\nload\n(S'harm'\ntR",
    "fromfile": b"cnumpy\nfromfile\n(S'/etc/passwd'\ntR",
    "pyspark's pickle": b"cpyspark.serializers\npickle\n",
    "a module of Petastorm's": b"cpetastorm.unischema\nwarnings\n",
    "globals of a function": b"cpetastorm.unischema\nUnischema.__init__.__globals__\n",
    "on the stack": b"\x8c\x02os\x8c\x06system\x93(S'touch harm'\ntR",
    "an instance": b"(ios\nsystem\n",
    "an object": b"(cos\nsystem\no",
    "a registered name": b"\x82\x01",
    "a call by keyword": b"cos\nsystem\n)}\x92",
    "a persistent id": b"Pos.system\n",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("said", HARMFUL.values(), ids=HARMFUL.keys())
def test_harm_in_any_place_of_a_schema_is_refused(said: bytes, place: str) -> None:
    refused(schema_of, schema_bytes(**{place: said}))


@pytest.mark.parametrize("said", HARMFUL.values(), ids=HARMFUL.keys())
def test_harm_in_any_place_of_an_index_is_refused(said: bytes) -> None:
    for pickled in (index_bytes(said), index_bytes(key=said), index_bytes(column=said), index_bytes(made=said)):
        refused(indexes_of, pickled)


@pytest.mark.parametrize("said", HARMFUL.values(), ids=HARMFUL.keys())
def test_harm_that_is_thrown_away_again_is_refused(said: bytes) -> None:
    refused(schema_of, said + b"0" + schema_bytes())
    refused(indexes_of, said + b"0" + index_bytes())


@pytest.mark.parametrize("place", PLACES)
def test_a_name_of_one_reader_is_refused_by_the_other(place: str) -> None:
    refused(schema_of, schema_bytes(**{place: b"cpetastorm.etl.rowgroup_indexers\nSingleFieldIndexer\n"}))


@pytest.mark.parametrize(("module", "name"), NAMES, ids=lambda part: part)
def test_a_name_of_a_schema_is_no_part_of_an_index(module: str, name: str) -> None:
    said = f"c{module}\n{name}\n".encode()
    for made in (said, said + b"(tR", said + b")\x81"):
        refused(indexes_of, index_bytes(made=made))
        refused(indexes_of, index_bytes(key=made))


class Reduced:
    """What `__reduce__` asks for."""

    def __init__(self, *asked: Any) -> None:
        self.asked = asked

    def __reduce__(self) -> Any:
        return self.asked


CHAINS = {
    "import and call": Reduced(os.system, ("true",)),
    "a function of a class": Reduced(getattr, (int, "__subclasses__")),
    "state by a function": Reduced(dict, (), None, None, iter([("a", 1)])),
    "items by a generator": Reduced(list, (), None, iter([1, 2])),
    "nested": Reduced(eval, (Reduced(str, ("1",)),)),
    "deep": Reduced(map, (Reduced(getattr, (Reduced(__import__, ("os",)), "system")), ["true"])),
}


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS.keys())
@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
def test_chains_of_reduce_are_refused(read: Callable[[bytes], Any], chain: Reduced, protocol: int) -> None:
    refused(read, pickle.dumps(chain, protocol))
    refused(read, pickle.dumps({"i": chain}, protocol))


def text(value: bytes) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value


def fields_of(keep: bytes, field: Callable[[int], bytes], count: int) -> bytes:
    """Fields of different names, which share what `keep` leaves in the memo."""
    pairs = b"".join(b"]" + text(b"f%d" % number) + b"a" + field(number) + b"aa" for number in range(count))
    return schema_bytes(fields=keep + b"0ccollections\nOrderedDict\n(]" + pairs + b"tR")


def a_field(number: int, *, dtype: bytes = b"cnumpy\nint64\n", shape: bytes = b")", codec: bytes = b"N") -> bytes:
    return b"cpetastorm.unischema\nUnischemaField\n(" + text(b"f%d" % number) + dtype + shape + codec + b"\x89tR"


def sharing(number: int) -> Callable[[int], bytes]:
    return lambda of_field: a_field(of_field, **SHARED[number])


LONG = 90_000
IMAGE = b"cpetastorm.codecs\nCompressedImageCodec\n)\x81}\x8c\x0c_image_codec"
SHARED: list[dict[str, bytes]] = [{"shape": b"h\x00"}, {"codec": b"h\x00"}, {"dtype": b"h\x00"}]
PARTS = {
    "a shape of many sizes": (b"(" + b"K\x01" * LONG + b"tq\x00", sharing(0)),
    "a format of many letters": (IMAGE + text(b"x" * 4 * 2**20) + b"sbq\x00", sharing(1)),
    "a dtype of many letters": (b"cnumpy\ndtype\n(" + text(b"M8" * 2**21) + b"tRq\x00", sharing(2)),
    "a unit of many letters": (
        b"cnumpy\ndtype\n(" + text(b"M8") + b"tR(K\x01B" + struct.pack("<I", 4 * 2**20) + b"s" * 4 * 2**20
        + b"K\x01\x86\x86tbq\x00",
        sharing(2),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("keep", "field"), PARTS.values(), ids=PARTS.keys())
def test_parts_that_many_fields_share_cost_no_more_than_the_pickle(keep: bytes, field: Callable[[int], bytes]) -> None:
    in_little_memory(lambda: schema_of(fields_of(keep, field, 5_000)))


def test_a_field_that_is_listed_again_and_again_is_refused() -> None:
    pair = b"](" + b"S'id'\n" + BARE + b"I00\ntReq\x00"
    again = b"ccollections\nOrderedDict\n(](" + pair + b"h\x00" * 80_000 + b"etR"
    assert "two fields 'id'" in in_little_memory(lambda: schema_of(schema_bytes(fields=again)))


def test_names_of_many_letters_are_refused() -> None:
    name = b"S'" + b"x" * 60_000 + b"'\n"
    assert "a text of 60,000 characters" in refused(schema_of, schema_bytes(field_name=name))
    assert "a text of 60,000 characters" in refused(schema_of, schema_bytes(schema_name=name))


def test_values_that_many_indexes_share_cost_no_more_than_the_pickle() -> None:
    values = b"".join(b"M" + struct.pack("<H", number) + b"h\x01s" for number in range(20_000))
    data = VALUES + b"N0" + b"]q\x01" + b"0" + values
    made = index_bytes(data)[: -len(b"s.")].removeprefix(b"(dS'i'\n")
    names = b"".join(text(b"i%d" % number) + b"h\x02s" for number in range(10_000))
    assert "they share parts" in refused(indexes_of, b"}" + text(b"i") + made + b"q\x02s" + names + b".")


def test_row_groups_that_many_values_share_cost_no_more_than_the_pickle(tmp_path: Path) -> None:
    groups = b"(l(" + b"".join(b"M" + struct.pack("<H", number) for number in range(30_000)) + b"ep0\n"
    items = b"".join(b"J" + struct.pack("<i", number) + b"g0\ns" for number in range(30_000))
    hostile = index_bytes(VALUES + b"S'x'\n" + groups + b"s" + items)
    folder = crafted(tmp_path, schema_bytes(), {PETASTORM_INDEX_KEY: hostile, COUNTS_KEY: b'{"a.parquet": 2}'})
    found = in_little_memory(lambda: get_row_group_indexes(petastore.open_dataset(folder)))
    assert found["i"].get_row_group_indexes(7) == {0, 1}


def in_little_memory(read: Callable[[], Any]) -> Any:
    """What comes of it, value or message, while time and memory are watched."""
    tracemalloc.start()
    began = time.thread_time()
    try:
        found = read()
    except MetadataError as problem:
        found = str(problem)
        assert len(found) < 2000
    seconds, (_, peak) = time.thread_time() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seconds < SECONDS
    assert peak < MEBIBYTES * 2**20
    return found


HUGE = (
    b"L" + b"9" * 300 + b"L\n",
    b"\x8b\x00\x00\x10\x00" + b"\x7f" * 2**20,
    b"I" + b"9" * 39 + b"\n",
    b"\x8a\xff" + b"\x7f" * 255,
)


@pytest.mark.parametrize("place", ["shape", "nullable", "dtype", "schema_name", "field"])
@pytest.mark.parametrize("number", range(len(HUGE)))
def test_huge_integers_are_refused_wherever_they_lie(number: int, place: str) -> None:
    refused(schema_of, schema_bytes(**{place: b"(" + HUGE[number] + b"t" if place == "shape" else HUGE[number]}))
    refused(indexes_of, index_bytes(key=HUGE[number]))


RECURSIVE = {
    "a schema in its own name": schema_bytes(schema_name=b"]p9\ng9\na"),
    "a shape in itself": schema_bytes(shape=b"(]p9\n(g9\ntat"),
    "a codec in its own state": schema_bytes(codec=b"cpetastorm.codecs\nScalarCodec\n)\x81p9\n}S'_spark_type'\ng9\nsb"),
    "fields in fields": schema_bytes(fields=b"}p9\nS'id'\ng9\ns"),
    "a thousand codecs deep": schema_bytes(
        codec=b"cpetastorm.codecs\nScalarCodec\n)\x81}S'_spark_type'\n" * 1000 + b"N" + b"sb" * 1000
    ),
    "a thousand tuples deep": schema_bytes(shape=b"(" * 1000 + b"t" * 1000),
}


@pytest.mark.parametrize("pickled", RECURSIVE.values(), ids=RECURSIVE.keys())
def test_recursion_is_refused(pickled: bytes) -> None:
    refused(schema_of, pickled)


def vocabulary() -> st.SearchStrategy[bytes]:
    """What schemas and indexes are said with, whole and in any order."""
    names = st.sampled_from([f"c{module}\n{name}\n".encode() for module, name in NAMES])
    names |= st.sampled_from([said for said in HARMFUL.values() if said.startswith(b"c")])
    texts = st.sampled_from(["_name", "_fields", "_spark_type", "_image_codec", "_quality", "precision", "id", ".png"])
    glue = st.sampled_from([bytes([opcode]) for opcode in b"()tR\x81}]dlsuaeb0N2\x88\x85\x86\x87\x8f\x90\x93\x94"])
    glue |= st.sampled_from([b"h\x00", b"q\x00"])
    made = st.sampled_from([BARE + b"I00\ntR", b"(tR", b"}b", b"NtR"])
    return names | texts.map(lambda word: text(word.encode())) | glue | glue | made


@settings(max_examples=examples(400))
@given(st.lists(vocabulary(), max_size=30).map(b"".join))
def test_any_stream_of_what_metadata_is_said_with_is_read_or_refused(stream: bytes) -> None:
    for read in READERS.values():
        try:
            watched(lambda read=read: read(stream + b"."))  # type: ignore[misc]
        except MetadataError as problem:
            assert len(str(problem)) < 2000  # noqa: PT017 - a value is as good an end


@settings(max_examples=examples(200))
@given(st.sampled_from(PLACES), st.lists(vocabulary(), max_size=8).map(b"".join))
def test_any_stream_in_any_place_of_a_schema_is_read_or_refused(place: str, stream: bytes) -> None:
    try:
        watched(lambda: schema_of(schema_bytes(**{place: stream or b"N"})))
    except MetadataError as problem:
        assert len(str(problem)) < 2000  # noqa: PT017 - a value is as good an end


def crafted(folder: Path, pickled: bytes, more: dict[bytes, bytes] | None = None) -> Path:
    """A dataset whose metadata was crafted, in a directory of its own."""
    dataset = folder / "crafted"
    dataset.mkdir()
    pq.write_table(pa.table({"id": pa.array([1, 2])}), dataset / "a.parquet", row_group_size=1)
    with pq.ParquetWriter(dataset / "_common_metadata", pa.schema([("id", pa.int64())])) as writer:
        writer.add_key_value_metadata({PETASTORM_SCHEMA_KEY: pickled, **(more or {})})
    return dataset


def users(folder: Path) -> Iterator[Callable[[], Any]]:
    """All that opens metadata."""
    yield lambda: petastore.open_dataset(folder)
    yield lambda: petastore.make_reader(folder)
    yield lambda: petastore.make_batch_reader(folder)
    yield lambda: migrate(folder)


@pytest.mark.parametrize("said", HARMFUL.values(), ids=HARMFUL.keys())
def test_a_dataset_with_harm_in_its_schema_does_not_open(
    said: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = crafted(tmp_path, schema_bytes(dtype=said))
    for use in users(folder):
        with pytest.raises(MetadataError, match="_common_metadata"):
            use()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["crafted"]


@pytest.mark.parametrize("said", HARMFUL.values(), ids=HARMFUL.keys())
def test_harm_in_an_index_is_refused_when_indexes_are_asked_for(
    said: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = crafted(tmp_path, schema_bytes(), {PETASTORM_INDEX_KEY: index_bytes(key=said)})
    dataset = petastore.open_dataset(folder)
    with pytest.raises(MetadataError, match="_common_metadata"):
        get_row_group_indexes(dataset)
    assert list(migrate(folder).left) == ["all"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["crafted"]
