"""A selection file says what was kept, and whatever is wrong with it makes it as good as not there."""

from __future__ import annotations

import hashlib
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import ipc

from petastore.plan.selection import Pruned
from petastore.selecting.selection_file import (
    Kept,
    as_kept,
    read_selection_file,
    selection_bytes,
    write_aside,
)

ROWS = np.array([3, 0, 9, 5])
KEPT: dict[int, Kept] = {0: True, 2: np.array([True, False] * 4 + [True]), 3: False}


def written(folder: Path, data: bytes) -> Any:
    (folder / "x.selection").write_bytes(data)
    found = read_selection_file(folder / "x.selection", "key", ROWS)
    return None if found is None else found[0]


def same(found: Any, kept: dict[int, Kept]) -> bool:
    return list(found) == list(kept) and all(np.array_equal(found[group], kept[group]) for group in kept)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert same(written(tmp_path, selection_bytes("key", KEPT, ROWS)), KEPT)
    assert written(tmp_path, selection_bytes("key", {}, ROWS)) == {}


@given(st.lists(st.lists(st.booleans(), max_size=20), min_size=1, max_size=10))
def test_any_bitmaps_come_back(tmp_path_factory: pytest.TempPathFactory, drawn: list[list[bool]]) -> None:
    rows = np.array([len(bits) for bits in drawn])
    kept = {group: as_kept(np.array(bits, np.bool_)) for group, bits in enumerate(drawn)}
    path = tmp_path_factory.getbasetemp() / "drawn.selection"
    path.write_bytes(selection_bytes("key", kept, rows))
    found = read_selection_file(path, "key", rows)
    assert found is not None
    assert same(found[0], kept)


def test_there_is_no_such_file(tmp_path: Path) -> None:
    assert read_selection_file(tmp_path / "none.selection", "key", ROWS) is None
    assert read_selection_file(tmp_path, "key", ROWS) is None


def test_a_file_damaged_or_cut_anywhere_is_none(tmp_path: Path) -> None:
    data = selection_bytes("key", KEPT, ROWS)
    for place in range(0, len(data), 7):
        damaged = bytearray(data)
        damaged[place] ^= 1
        assert written(tmp_path, bytes(damaged)) is None
        assert written(tmp_path, data[:place]) is None
    assert written(tmp_path, data + b"\x00") is None


def test_the_answer_to_another_question_is_none(tmp_path: Path) -> None:
    assert written(tmp_path, selection_bytes("other", KEPT, ROWS)) is None
    assert written(tmp_path, selection_bytes("key", {}, ROWS[:3])) is None


def test_a_pickle_is_not_loaded(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return (tmp_path / "sprung").touch, ()

    assert written(tmp_path, pickle.dumps(Trap())) is None
    assert not (tmp_path / "sprung").exists()


def forged(
    columns: dict[str, Any], *, metadata: dict[str, str] | None = None, version: bytes = b"petastore.selection/2"
) -> bytes:
    """A file with a right digest, whatever is in it."""
    types = {"group": pa.int64(), "count": pa.int64(), "bitmap": pa.large_binary()}
    fields = [pa.field(name, types[name], nullable=name == "bitmap") for name in columns]
    schema = pa.schema(fields, metadata={"key": "key", "row_groups": "4", "pruned": "[]", **(metadata or {})})
    sink = io.BytesIO()
    with ipc.new_file(sink, schema) as writer:
        writer.write(pa.record_batch([pa.array(columns[field.name], field.type) for field in fields], schema=schema))
    content = sink.getvalue()
    return version + b"\n" + hashlib.sha256(content).hexdigest().encode() + b"\n" + content


@pytest.mark.parametrize(
    "columns",
    [
        {"group": [4], "count": [1], "bitmap": [None]},
        {"group": [-1], "count": [1], "bitmap": [None]},
        {"group": [0, 0], "count": [3, 3], "bitmap": [None, None]},
        {"group": [2, 0], "count": [9, 3], "bitmap": [None, None]},
        {"group": [0], "count": [2], "bitmap": [None]},
        {"group": [0], "count": [2], "bitmap": [b"\xe0"]},
        {"group": [0], "count": [3], "bitmap": [b"\xe0"]},
        {"group": [2], "count": [2], "bitmap": [b"\xc0"]},
        {"group": [2], "count": [2], "bitmap": [b"\xc0\x00\x00"]},
        {"group": [0], "count": [2]},
    ],
    ids=str,
)
def test_what_does_not_fit_the_row_groups_is_none(tmp_path: Path, columns: dict[str, Any]) -> None:
    assert written(tmp_path, forged(columns)) is None


PRUNED = (Pruned("statistics", 1, 5), Pruned("filter", 0, 4))


def test_what_left_rows_out_is_written_too(tmp_path: Path) -> None:
    (tmp_path / "x.selection").write_bytes(selection_bytes("key", KEPT, ROWS, PRUNED))
    found = read_selection_file(tmp_path / "x.selection", "key", ROWS)
    assert found is not None
    assert same(found[0], KEPT)
    assert found[1] == PRUNED


@pytest.mark.parametrize(
    "pruned",
    [
        '[["chance", 1, 5]]',
        '[["filter", 1]]',
        '[["filter", 1, 5, 6]]',
        '[["filter", -1, 5]]',
        '[["filter", 6, 5]]',
        '[["filter", 1, 1e999]]',
        '[["filter", true, 5]]',
        '[["filter", 1,  5]]',
        '[["filter", 0, 16]]',
        '{"filter": 5}',
        '"filter"',
        "null",
        "",
        "[" * 100_000,
    ],
    ids=lambda pruned: str(pruned)[:20],
)
def test_an_account_that_cannot_be_makes_the_file_none(tmp_path: Path, pruned: str) -> None:
    columns = {"group": [0], "count": [2], "bitmap": [b"\xc0"]}
    assert written(tmp_path, forged(columns, metadata={"pruned": '[["filter", 1, 15]]'})) is not None
    assert written(tmp_path, forged(columns, metadata={"pruned": pruned})) is None


def test_a_file_of_the_version_before_is_none(tmp_path: Path) -> None:
    columns = {"group": [0], "count": [2], "bitmap": [b"\xc0"]}
    assert written(tmp_path, forged(columns, version=b"petastore.selection/1")) is None


def test_a_forged_file_that_fits_is_a_file(tmp_path: Path) -> None:
    found = written(tmp_path, forged({"group": [0], "count": [2], "bitmap": [b"\xc0"]}))
    assert same(found, {0: np.array([True, True, False])})


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "x.selection"
    write_aside(path, b"old")
    with pytest.raises(TypeError):
        write_aside(path, "text")  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
