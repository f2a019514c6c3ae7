"""Tests of the ledger table: counts, slots, memory maps, and detection of damage."""

from __future__ import annotations

import secrets
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.cache.table import FREE, KEPT, WRITING, DamagedTableError, Rows, Table, slots_for, table_bytes

LIMIT = 1 << 20


def nothing() -> Rows:
    empty = np.zeros(0, np.int64)
    return Rows(np.zeros((0, 2), np.uint64), empty, empty, empty)


def made(tmp_path: Path) -> Table:
    return Table.create(tmp_path / "ledger", LIMIT, nothing())


STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.integers(0, 5000)), max_size=40)


@given(STEPS)
def test_ledger_table_counts_the_bytes_of_all_its_entries(steps: list[tuple[bool, int, int]]) -> None:
    path = Path(f"/dev/shm/{secrets.token_hex(8)}")  # noqa: S108 - removed below
    table, sizes = Table.create(path, LIMIT, nothing()), dict[int, int]()
    try:
        for takes, number, size in steps:
            digest = bytes([number]) * 16
            if takes and number not in sizes:
                slot = table.take(digest, size, KEPT, 1)
                assert slot is not None
                assert table.find(digest) == [slot]
                assert table.is_row_of(slot, digest)
                assert table.name(slot) == digest.hex()
                sizes[number] = size
            elif not takes and sizes.pop(number, None) is not None:
                (slot,) = table.find(digest)
                table.free(slot)
                assert table.find(digest) == []
            assert table.counted == sum(sizes.values())
            assert Table.open(path).counted == sum(sizes.values())
    finally:
        path.unlink()


def test_ledger_table_changes_are_seen_through_another_memory_map(tmp_path: Path) -> None:
    table = made(tmp_path)
    other = Table.open(tmp_path / "ledger")
    assert table.take(b"0123456789abcdef", 5, WRITING, 3) == 0
    assert (other.rows, other.counted, other.state[0], other.used[0]) == (1, 5, WRITING, 3)
    table.set_state(0, -7)
    table.note_use(0, 9)
    assert (other.state[0], other.used[0]) == (-7, 9)
    assert Table.open(tmp_path / "ledger").identity == table.identity


def test_ledger_table_reuses_freed_slots_and_rejects_entries_when_full(tmp_path: Path) -> None:
    table = made(tmp_path)
    for number in range(table.slots):
        assert table.take(number.to_bytes(16, "little"), 1, KEPT, 0) == number
    assert table.take(b"x" * 16, 1, KEPT, 0) is None
    table.free(3)
    assert table.take(b"x" * 16, 1, KEPT, 0) == 3


def test_ledger_table_created_with_rows_contains_them(tmp_path: Path) -> None:
    rows = Rows(
        np.arange(6, dtype=np.uint64).reshape(3, 2), np.array([1, 2, 3]), np.array([1, 2, 3]), np.array([7, 8, 9])
    )
    table = Table.create(tmp_path / "ledger", LIMIT, rows)
    assert (table.rows, table.counted, table.limit) == (3, 6, LIMIT)
    again = Table.open(tmp_path / "ledger")
    assert again.digest[:3].tolist() == rows.digest.tolist()
    assert again.state[:4].tolist() == [1, 2, 3, FREE]
    assert again.used[:3].tolist() == [7, 8, 9]
    assert again.room == LIMIT - (tmp_path / "ledger").stat().st_size


def test_ledger_table_file_has_its_full_size_allocated(tmp_path: Path) -> None:
    made(tmp_path)
    assert (tmp_path / "ledger").stat().st_size == table_bytes(slots_for(LIMIT))
    assert (tmp_path / "ledger").stat().st_blocks * 512 >= table_bytes(slots_for(LIMIT))


def test_ledger_table_detects_any_damaged_byte_except_in_last_use_times(tmp_path: Path) -> None:
    table = made(tmp_path)
    for number in range(4):
        table.take(bytes([number]) * 16, 4096, KEPT, 5)
    right = (tmp_path / "ledger").read_bytes()
    slots = table.slots
    columns = {"digest": 4096, "size": 4096 + 16 * slots, "state": 4096 + 24 * slots, "check": 4096 + 32 * slots}
    places = [at + place for name, at in columns.items() for place in range(64 if name == "digest" else 32)]
    for place in (*places, 4096 + 16 * slots + 8 * 5, 4096 + 24 * slots + 8 * 5, *range(28), 66):
        (tmp_path / "ledger").write_bytes(right[:place] + bytes([right[place] ^ 1]) + right[place + 1 :])
        with pytest.raises(DamagedTableError):
            Table.open(tmp_path / "ledger")
    place = 4096 + 40 * slots
    (tmp_path / "ledger").write_bytes(right[:place] + bytes([right[place] ^ 1]) + right[place + 1 :])
    assert Table.open(tmp_path / "ledger").counted == 4 * 4096


def test_damaged_ledger_table_error_has_the_size_limit_if_readable(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.take(b"x" * 16, 4096, KEPT, 5)
    with (tmp_path / "ledger").open("r+b") as file:
        file.seek(4096)
        file.write(b"y")
    with pytest.raises(DamagedTableError) as caught:
        Table.open(tmp_path / "ledger")
    assert caught.value.limit == LIMIT
    (tmp_path / "ledger").unlink()
    with pytest.raises(DamagedTableError) as caught:
        Table.open(tmp_path / "ledger")
    assert caught.value.limit is None


def test_failed_table_creation_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(OSError):
        Table.create(tmp_path / "ledger", LIMIT, nothing())
    assert list(tmp_path.iterdir()) == []
