"""Tests of reading Petastorm's pickled row group indexes; pickles that are not an index are rejected."""

from __future__ import annotations

import collections
import pickle
import sys
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from petastore.errors import MetadataError
from petastore.storage.metadata.petastorm_index import PETASTORM_INDEX_KEY, petastorm_indexes
from tests.calls import counted_calls
from tests.tier import examples

FOLDERS = ["petastorm-legacy/0.5.1", "petastorm-legacy/0.7.6", "petastorm-0.13.1/Meadow"]


def pickled_in(folder: Path) -> bytes:
    pickled: bytes = pq.read_metadata(folder / "_common_metadata").metadata[PETASTORM_INDEX_KEY]
    return pickled


def refused(pickled: bytes) -> str:
    modules = set(sys.modules)
    with counted_calls() as calls, pytest.raises(MetadataError) as caught:
        petastorm_indexes(pickled, source="a test")
    assert calls.count <= 1_000 + 20 * len(pickled)
    assert set(sys.modules) == modules
    assert len(str(caught.value)) < 500
    return str(caught.value)


def test_indexes_written_by_petastorm_equal_the_contents_of_the_files(fixtures_root: Path) -> None:
    folder = fixtures_root / "petastorm-0.13.1" / "Meadow"
    found = petastorm_indexes(pickled_in(folder), source="Meadow")
    files = [pq.ParquetFile(path) for path in sorted(folder.rglob("*.parquet"))]
    groups: list[pa.Table] = [file.read_row_group(number) for file in files for number in range(file.num_row_groups)]
    ids: Any = collections.defaultdict(set)
    for ordinal, group in enumerate(groups):
        for value in group["id"].to_pylist():
            ids[value].add(ordinal)
    assert found.keys() == {"by_id", "has_title"}
    assert (found["by_id"].column, found["by_id"].values) == ("id", ids)
    with_title = {ordinal for ordinal, group in enumerate(groups) if group["title"].null_count < len(group)}
    assert (found["has_title"].column, found["has_title"].values) == ("title", None)
    assert found["has_title"].row_groups == with_title


@pytest.mark.parametrize("folder", FOLDERS[:2])
def test_petastorm_index_of_python_2_is_read(fixtures_root: Path, folder: str) -> None:
    found = petastorm_indexes(pickled_in(fixtures_root / folder), source=folder)
    assert {"id", "sensor_name", "string_array_nullable"} <= found.keys()
    assert found["sensor_name"].values == {"test_sensor": frozenset(range(10))}
    assert found["id"].values is not None
    assert sorted(found["id"].values) == list(range(100))
    assert found["id"].row_groups == frozenset(range(10))


@pytest.fixture
def indexers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stand-in for `petastorm.etl.rowgroup_indexers`, so that pickle itself writes Petastorm's format."""
    for name in ("petastorm", "petastorm.etl"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    module: Any = ModuleType("petastorm.etl.rowgroup_indexers")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for name in ("SingleFieldIndexer", "FieldNotNullIndexer"):
        setattr(module, name, type(name, (), {"__module__": module.__name__}))
    return module


def single(indexers: Any, values: dict[Any, set[int]]) -> Any:
    indexer = indexers.SingleFieldIndexer()
    indexer.__dict__.update(_index_name="i", _column_name="c", _index_data=collections.defaultdict(set, values))
    return indexer


@pytest.mark.parametrize("protocol", range(6))
def test_petastorm_index_values_have_python_types(indexers: Any, protocol: int) -> None:
    scalars = [
        np.int8(-5), np.int64(2**40), np.int64(200), np.uint64(2**63), np.uint16(7), np.float32(0.5),
        np.float64(-1e300),
        np.str_("grün €"), np.str_("U" * 300), np.bytes_(b"\xff\x00\x01"), Decimal("1.990000000"), Decimal("-12E+3"),
        "text", 11, 3.25, np.array([9], ">i4")[0],
    ]  # fmt: skip
    plain = [scalar.item() if isinstance(scalar, np.generic) else scalar for scalar in scalars]
    expected = {value: frozenset({row}) for row, value in enumerate(plain)}
    pickled = pickle.dumps({"i": single(indexers, {scalar: {row} for row, scalar in enumerate(scalars)})}, protocol)
    found = petastorm_indexes(pickled, source="a test")["i"]
    assert found.values == expected
    assert {type(value) for value in found.values or ()} <= {int, float, str, bytes, Decimal}
    assert found.row_groups == set(range(len(scalars)))


def test_truncated_petastorm_index_raises(fixtures_root: Path) -> None:
    pickled = pickled_in(fixtures_root / FOLDERS[2])
    for end in range(len(pickled)):
        with pytest.raises(MetadataError):
            petastorm_indexes(pickled[:end], source="a test")


@settings(max_examples=examples(200))
@given(data=st.data())
def test_damaged_petastorm_index_parses_or_raises(fixtures_root: Path, data: st.DataObject) -> None:
    damaged = bytearray(pickled_in(fixtures_root / data.draw(st.sampled_from(FOLDERS))))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        petastorm_indexes(bytes(damaged), source="a test")
    except MetadataError as problem:
        assert str(problem).startswith("a test")  # noqa: PT017 - an index is as good an end


OBJECT = b"ccopy_reg\n_reconstructor\n(cpetastorm.etl.rowgroup_indexers\nSingleFieldIndexer\nc__builtin__\nobject\nNtR"
VALUES = b"ccollections\ndefaultdict\n(c__builtin__\nset\ntR"
SCALAR = b"cnumpy.core.multiarray\nscalar\n(cnumpy\ndtype\n(S'%s'\nI0\nI1\ntRS'%s'\ntR"


def index_bytes(
    data: bytes = VALUES, *, key: bytes | None = None, column: bytes = b"S'c'\n", made: bytes = OBJECT
) -> bytes:
    item = b"" if key is None else key + b"(lI1\nas"
    return b"(dS'i'\n" + made + b"(dS'_column_name'\n" + column + b"sS'_index_data'\n" + data + item + b"sbs."


WRONG = {
    "a list": b"(l.",
    "a name": b"cdecimal\nDecimal\n.",
    "a list of indexes": b"(dS'i'\n(ls.",
    "an index by number": b"(dI1\n" + OBJECT + b"s.",
    "eval": b"c__builtin__\neval\n(S'1'\ntR.",
    "a schema": b"(dS'i'\ncpetastorm.unischema\nUnischema\n)\x81s.",
    "no state": b"(dS'i'\n" + OBJECT + b"s.",
    "a column without a name": index_bytes(column=b"N"),
    "values that are a list": index_bytes(b"(l"),
    "values that are a set": index_bytes(b"\x8f"),
    "another object": index_bytes(made=OBJECT.replace(b"SingleFieldIndexer", b"FieldNotNullIndexer")),
    "an object of another base": index_bytes(made=OBJECT.replace(b"\nobject", b"\nset")),
    "an object called with arguments": index_bytes(
        made=b"cpetastorm.etl.rowgroup_indexers\nSingleFieldIndexer\n(I1\ntR"
    ),
    "None as a value": index_bytes(key=b"N"),
    "a name as a value": index_bytes(key=b"cdecimal\nDecimal\n"),
    "an object as a value": index_bytes(key=OBJECT),
    "a set as a value": index_bytes(key=b"c__builtin__\nset\n(tR"),
    "a decimal of letters": index_bytes(key=b"cdecimal\nDecimal\n(S'x'\ntR"),
    "a decimal that signals": index_bytes(key=b"cdecimal\nDecimal\n(S'sNaN'\ntR"),
    "a decimal of many digits": index_bytes(key=b"cdecimal\nDecimal\n(S'" + b"9" * 5000 + b"'\ntR"),
    "a decimal of a number": index_bytes(key=b"cdecimal\nDecimal\n(I1\ntR"),
    "a scalar of too few bytes": index_bytes(key=SCALAR % (b"i8", b"1234")),
    "a scalar of too many bytes": index_bytes(key=SCALAR % (b"i2", b"1234")),
    "a scalar of an object": index_bytes(key=SCALAR % (b"O", b"12345678")),
    "a scalar of parts": index_bytes(key=SCALAR % (b"i4,i4", b"12345678")),
    "a scalar of void": index_bytes(key=SCALAR % (b"V8", b"12345678")),
    "a scalar of no characters": index_bytes(key=SCALAR % (b"U1", b"\\xff\\xff\\xff\\xff")),
    "a scalar of a list": index_bytes(key=b"cnumpy.core.multiarray\nscalar\n((l(ltR"),
    "one value twice": index_bytes(key=SCALAR % (b"i1", b"1") + b"(ls" + SCALAR % (b"i1", b"1")),
    "an ordinal below zero": index_bytes(key=b"I1\n(lI-1\nas" + b"I2\n"),
    "an ordinal beyond all": index_bytes(key=b"I1\n(lI4294967296\nas" + b"I2\n"),
    "an ordinal of text": index_bytes(key=b"I1\n(lS'1'\nas" + b"I2\n"),
    "an ordinal that is truth": index_bytes(key=b"I1\n(lI01\nas" + b"I2\n"),
    "an ordinal that is a list": index_bytes(key=b"I1\n(l(las" + b"I2\n"),
    "ordinals that are a number": index_bytes(key=b"I1\nI1\ns" + b"I2\n"),
    "ordinals in a set with arguments": index_bytes(key=b"I1\nc__builtin__\nset\n((l(ltRs" + b"I2\n"),
}  # fmt: skip


def test_pickle_that_is_not_an_index_raises(subtests: pytest.Subtests) -> None:
    for name, pickled in WRONG.items():
        with subtests.test(name):
            assert refused(pickled).startswith("a test")


def test_handwritten_petastorm_index_of_these_tests_is_valid() -> None:
    found = petastorm_indexes(index_bytes(key=SCALAR % (b"i1", b"\\x07")), source="a test")["i"]
    assert found.column == "c"
    assert dict(found.values or {}) == {7: frozenset({1})}


def test_petastorm_index_values_that_share_row_groups_parse_in_linear_time() -> None:
    shared = b"(l(" + b"".join(b"M" + number.to_bytes(2, "little") for number in range(20_000)) + b"ep0\n"
    items = b"".join(b"I%d\ng0\ns" % number for number in range(20_000))
    pickled = index_bytes(VALUES + b"S'x'\n" + shared + b"s" + items)
    with counted_calls() as calls:
        found = petastorm_indexes(pickled, source="a test")["i"]
    assert calls.count <= 20 * len(pickled)
    assert len(found.row_groups) == 20_000
    assert len(found.values or ()) == 20_001
