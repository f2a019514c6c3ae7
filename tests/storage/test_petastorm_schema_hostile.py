"""Tests of malicious Petastorm metadata: a clear error in bounded time and memory, and no code is run."""

from __future__ import annotations

import builtins
import gc
import itertools
import os
import pickle
import struct
import subprocess
import sys
import threading
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
from petastore.storage.metadata.petastorm_index import PETASTORM_INDEX_KEY, petastorm_indexes
from petastore.storage.metadata.petastorm_schema import NAMES, PETASTORM_SCHEMA_KEY, petastorm_document
from tests.calls import counted_calls
from tests.storage.metadata.test_petastorm_index import VALUES, index_bytes
from tests.storage.metadata.test_petastorm_schema import BARE, PLACES, most_calls, schema_bytes
from tests.tier import examples, sized

MEBIBYTES = 128
COUNTS_KEY = b"dataset-toolkit.num_row_groups_per_file.v1"
WATCHED = (
    (os, "system"), (os, "popen"), (subprocess, "Popen"), (pickle, "loads"), (builtins, "eval"), (builtins, "exec"),
    (builtins, "__import__"), (builtins, "getattr"), (builtins, "open"),
)  # fmt: skip


def watched(read: Callable[[], Any]) -> Any:
    """Return the result of `read`, while harmful functions are recorded instead of run."""
    called, imported_by_others = list[str](), list[Any]()
    ours, modules, is_collecting = threading.get_ident(), set(sys.modules), gc.isenabled()
    real = [(module, name, getattr(module, name)) for module, name in WATCHED]

    def noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def note(*given: Any, **named: Any) -> Any:
            if threading.get_ident() != ours:  # threads of libraries from other tests may still run
                imported_by_others.extend(given[:1] if name == "__import__" else ())
                return function(*given, **named)
            return _getattr(called, function, *given) if name == "getattr" else called.append(name)

        return note

    gc.disable()  # collection could finalize leftovers of other tests in this thread
    # Patched by hand, because pytest's monkeypatch imports modules. `getattr` still works, since our code calls it.
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


def counted(read: Callable[[bytes], Any], pickled: bytes) -> Any:
    """Read a pickle; check that the number of function calls is linear in its length."""
    with counted_calls() as calls:
        try:
            return read(pickled)
        finally:
            assert calls.count <= most_calls(pickled)


def refused(read: Callable[[bytes], Any], pickled: bytes) -> str:
    with pytest.raises(MetadataError) as caught:
        watched(lambda: counted(read, pickled))
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
def test_malicious_object_in_a_schema_pickle_raises(place: str, subtests: pytest.Subtests) -> None:
    for name, said in HARMFUL.items():
        with subtests.test(name):
            refused(schema_of, schema_bytes(**{place: said}))


def test_malicious_object_in_an_index_pickle_raises(subtests: pytest.Subtests) -> None:
    for name, said in HARMFUL.items():
        with subtests.test(name):
            for pickled in (index_bytes(said), index_bytes(key=said), index_bytes(column=said), index_bytes(made=said)):
                refused(indexes_of, pickled)


def test_malicious_object_discarded_by_the_pickle_raises(subtests: pytest.Subtests) -> None:
    for name, said in HARMFUL.items():
        with subtests.test(name):
            refused(schema_of, said + b"0" + schema_bytes())
            refused(indexes_of, said + b"0" + index_bytes())


def test_names_allowed_only_in_indexes_raise_in_schemas(subtests: pytest.Subtests) -> None:
    for place in PLACES:
        with subtests.test(place):
            refused(schema_of, schema_bytes(**{place: b"cpetastorm.etl.rowgroup_indexers\nSingleFieldIndexer\n"}))


def test_schema_name_in_an_index_raises(subtests: pytest.Subtests) -> None:
    for module, name in NAMES:
        said = f"c{module}\n{name}\n".encode()
        with subtests.test(f"{module}.{name}"):
            for made in (said, said + b"(tR", said + b")\x81"):
                refused(indexes_of, index_bytes(made=made))
                refused(indexes_of, index_bytes(key=made))


class Reduced:
    """An object with the given result of `__reduce__`."""

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


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS.keys())
def test_reduce_chains_in_a_schema_raise(chain: Reduced, subtests: pytest.Subtests) -> None:
    for reader, protocol in itertools.product(READERS, range(6)):
        with subtests.test(reader, protocol=protocol):
            refused(READERS[reader], pickle.dumps(chain, protocol))
            refused(READERS[reader], pickle.dumps({"i": chain}, protocol))


def text(value: bytes) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value


def fields_of(keep: bytes, field: Callable[[int], bytes], count: int) -> bytes:
    """Return a schema of differently named fields that share the memo entries of `keep`."""
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
def test_schema_pickle_with_shared_parts_of_fields_takes_linear_time(
    keep: bytes, field: Callable[[int], bytes]
) -> None:
    pickled = fields_of(keep, field, sized(full=5_000, quick=400))
    in_little_memory(lambda: counted(schema_of, pickled))


def test_repeated_field_in_a_schema_raises() -> None:
    pair = b"](" + b"S'id'\n" + BARE + b"I00\ntReq\x00"
    again = b"ccollections\nOrderedDict\n(](" + pair + b"h\x00" * sized(full=80_000, quick=10_000) + b"etR"
    assert "fields must have distinct names, got 'id' twice" in in_little_memory(
        lambda: counted(schema_of, schema_bytes(fields=again))
    )


def test_too_long_names_in_a_schema_raise() -> None:
    name = b"S'" + b"x" * 60_000 + b"'\n"
    said = "must have at most 500 characters, got 60,000"
    assert f"a field's name {said}" in refused(schema_of, schema_bytes(field_name=name))
    assert said in refused(schema_of, schema_bytes(schema_name=name))


def test_index_pickle_with_shared_values_raises_in_linear_time() -> None:
    values = b"".join(b"M" + struct.pack("<H", number) + b"h\x01s" for number in range(20_000))
    data = VALUES + b"N0" + b"]q\x01" + b"0" + values
    made = index_bytes(data)[: -len(b"s.")].removeprefix(b"(dS'i'\n")
    names = b"".join(text(b"i%d" % number) + b"h\x02s" for number in range(10_000))
    pickled = b"}" + text(b"i") + made + b"q\x02s" + names + b"."
    with pytest.raises(MetadataError, match="the indexes must have at most 2,000,000 values"):
        watched(lambda: indexes_of(pickled))


def test_shared_row_groups_of_values_take_linear_time(tmp_path: Path) -> None:
    count = sized(full=30_000, quick=6_000)
    groups = b"(l(" + b"".join(b"M" + struct.pack("<H", number) for number in range(count)) + b"ep0\n"
    items = b"".join(b"J" + struct.pack("<i", number) + b"g0\ns" for number in range(count))
    hostile = index_bytes(VALUES + b"S'x'\n" + groups + b"s" + items)
    folder = crafted(tmp_path, schema_bytes(), {PETASTORM_INDEX_KEY: hostile, COUNTS_KEY: b'{"a.parquet": 2}'})
    with counted_calls() as calls:
        found = in_little_memory(lambda: get_row_group_indexes(petastore.open_dataset(folder)))
    assert calls.count <= most_calls(hostile)
    assert found["i"].get_row_group_indexes(7) == {0, 1}


def in_little_memory(read: Callable[[], Any]) -> Any:
    """Return the result or the error message of `read`; check that its memory peak is low."""
    tracemalloc.start()
    try:
        found = read()
    except MetadataError as problem:
        found = str(problem)
        assert len(found) < 2000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MEBIBYTES * 2**20
    return found


HUGE = (
    b"L" + b"9" * 300 + b"L\n",
    b"\x8b\x00\x00\x10\x00" + b"\x7f" * 2**20,
    b"I" + b"9" * 39 + b"\n",
    b"\x8a\xff" + b"\x7f" * 255,
)


def test_huge_integers_in_a_pickle_raise(subtests: pytest.Subtests) -> None:
    for number, said in enumerate(HUGE):
        with subtests.test("index", number=number):
            refused(indexes_of, index_bytes(key=said))
        for place in ("shape", "nullable", "dtype", "schema_name", "field"):
            with subtests.test(place, number=number):
                refused(schema_of, schema_bytes(**{place: b"(" + said + b"t" if place == "shape" else said}))


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


def test_recursive_pickle_raises(subtests: pytest.Subtests) -> None:
    for name, pickled in RECURSIVE.items():
        with subtests.test(name):
            refused(schema_of, pickled)


def vocabulary() -> st.SearchStrategy[bytes]:
    """Draw parts of schema and index pickles, complete and in any order."""
    names = st.sampled_from([f"c{module}\n{name}\n".encode() for module, name in NAMES])
    names |= st.sampled_from([said for said in HARMFUL.values() if said.startswith(b"c")])
    texts = st.sampled_from(["_name", "_fields", "_spark_type", "_image_codec", "_quality", "precision", "id", ".png"])
    glue = st.sampled_from([bytes([opcode]) for opcode in b"()tR\x81}]dlsuaeb0N2\x88\x85\x86\x87\x8f\x90\x93\x94"])
    glue |= st.sampled_from([b"h\x00", b"q\x00"])
    made = st.sampled_from([BARE + b"I00\ntR", b"(tR", b"}b", b"NtR"])
    return names | texts.map(lambda word: text(word.encode())) | glue | glue | made


@settings(max_examples=examples(400))
@given(st.lists(vocabulary(), max_size=30).map(b"".join))
def test_any_metadata_pickle_parses_or_raises(stream: bytes) -> None:
    for read in READERS.values():
        try:
            watched(lambda read=read: read(stream + b"."))  # type: ignore[misc]
        except MetadataError as problem:
            assert len(str(problem)) < 2000  # noqa: PT017 - a value is as good an end


@settings(max_examples=examples(200))
@given(st.sampled_from(PLACES), st.lists(vocabulary(), max_size=8).map(b"".join))
def test_any_bytes_in_a_schema_pickle_parse_or_raise(place: str, stream: bytes) -> None:
    try:
        watched(lambda: schema_of(schema_bytes(**{place: stream or b"N"})))
    except MetadataError as problem:
        assert len(str(problem)) < 2000  # noqa: PT017 - a value is as good an end


def crafted(folder: Path, pickled: bytes, more: dict[bytes, bytes] | None = None) -> Path:
    """Write a dataset with crafted metadata in its own directory."""
    dataset = folder / "crafted"
    dataset.mkdir(parents=True)
    pq.write_table(pa.table({"id": pa.array([1, 2])}), dataset / "a.parquet", row_group_size=1)
    with pq.ParquetWriter(dataset / "_common_metadata", pa.schema([("id", pa.int64())])) as writer:
        writer.add_key_value_metadata({PETASTORM_SCHEMA_KEY: pickled, **(more or {})})
    return dataset


def users(folder: Path) -> Iterator[Callable[[], Any]]:
    """Yield all functions that open metadata."""
    yield lambda: petastore.open_dataset(folder)
    yield lambda: petastore.make_reader(folder)
    yield lambda: petastore.make_batch_reader(folder)
    yield lambda: migrate(folder)


def test_dataset_with_a_malicious_schema_does_not_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    for number, (name, said) in enumerate(HARMFUL.items()):
        with subtests.test(name):
            folder = crafted(tmp_path / str(number), schema_bytes(dtype=said))
            monkeypatch.chdir(folder.parent)
            for use in users(folder):
                with pytest.raises(MetadataError, match="_common_metadata"):
                    use()
            assert sorted(path.name for path in folder.parent.iterdir()) == ["crafted"]


def test_malicious_index_raises_when_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    for number, (name, said) in enumerate(HARMFUL.items()):
        with subtests.test(name):
            folder = crafted(tmp_path / str(number), schema_bytes(), {PETASTORM_INDEX_KEY: index_bytes(key=said)})
            monkeypatch.chdir(folder.parent)
            dataset = petastore.open_dataset(folder)
            with pytest.raises(MetadataError, match="_common_metadata"):
                get_row_group_indexes(dataset)
            assert list(migrate(folder).left) == ["all"]
            assert sorted(path.name for path in folder.parent.iterdir()) == ["crafted"]
