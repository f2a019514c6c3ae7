"""The counts of many footers that are alike, worked out for all of them at once. Pure.

The files of a dataset mostly come from one writer: their footers have the same fields in the same order and differ in
numbers, names and statistics alone. So one of them is walked field by field, which gives the *steps* that lead through
it; then all the others take each step together, as arrays. A footer in which something else stands than the steps say
is no longer taken along, and left for others to read by itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.storage.footers.thrift import (
    BINARY,
    FIXED_BYTES,
    INTEGERS,
    LIST,
    ONE_BYTE_ELEMENTS,
    STRUCT,
    read_field,
    read_list_header,
    read_struct_list,
    read_varint,
    skip_value,
)

__all__ = ["FEWEST", "AlikeFooters", "Slot", "Step", "Walked", "alike_footers", "steps_through", "walk_together"]

FEWEST = 64
"""For fewer footers than these it is faster to read each by itself."""

_MOST_KINDS = 8
"""After so many kinds of footers the rest is read one by one: they are not of one writer."""

_MOST_AT_ONCE = 2048
"""Footers that take steps together; their arrays stay in the processor's cache."""

_MOST_BYTES = 1 << 20
"""Larger footers are read one by one: there is much to do for each, and they are not to be copied."""

_MOST_STEPS = 100_000
_ARROW_SCHEMA = b"ARROW:schema"
_COUNTED = ("rows", "stored", "decoded")
_OF_FILE = _OF_GROUP = -1
_GROUP_FIELDS = {2: "decoded", 3: "rows"}
_CHUNK_FIELDS = {5: "values", 7: "stored", 9: "data", 11: "dictionary"}
_LISTS = (LIST, 10)


@dataclasses.dataclass(frozen=True, slots=True)
class AlikeFooters:
    """Footers with one schema and as many row groups."""

    members: NDArray[np.int64]
    """Which of the footers that were given, ascending."""

    num_rows: NDArray[np.int64]
    """Rows of each file, as it says, shape (members,)."""

    counts: NDArray[np.int64]
    """Rows, compressed and uncompressed bytes of each row group, not yet checked, shape (members, 3, row groups)."""


def alike_footers(footers: Sequence[bytes]) -> list[AlikeFooters]:
    """Footers that are alike in schema and structure, kind after kind; those of rare kinds are in none.

    All of a kind have the same bytes for their Parquet schema, and for the Arrow schema in their key-value metadata. So
    what one of them says of its columns holds for all.

    Args:
        footers: The Thrift bytes, without length and magic; not trusted.
    """
    left = np.array([number for number, footer in enumerate(footers) if len(footer) <= _MOST_BYTES], dtype=np.int64)
    kinds: list[AlikeFooters] = []
    for _ in range(_MOST_KINDS):
        if len(left) < FEWEST:
            break
        steps = steps_through(footers[left[0]], _COUNTED)
        is_alike = np.zeros(len(left), np.bool_)
        if steps is not None:
            parts = [left[first : first + _MOST_AT_ONCE] for first in range(0, len(left), _MOST_AT_ONCE)]
            walked = [walk_together([footers[number] for number in part.tolist()], steps) for part in parts]
            is_alike = np.concatenate([part.is_alike for part in walked])
            numbers = np.concatenate([part.numbers for part in walked])[is_alike]
            kinds.append(_kind(left[is_alike], numbers, steps))
        is_alike[0] = True  # it has had its turn
        left = left[~is_alike]
    return kinds


@dataclasses.dataclass(frozen=True, slots=True)
class Slot:
    """A number, or a place, that is wanted of each footer."""

    group: int
    """Of which row group; -1 is of the file."""

    column: int
    """Of which of its column chunks; -1 is of the row group itself."""

    what: str
    """A count, `rows`, `values`, `stored` or `decoded`; where pages begin, `data` or `dictionary`; or a place in the
    footer itself: where a row group or the list of them has its `begin` or its `end`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """What stands next in each footer: the same bytes, or else a number, which may be how many bytes follow it."""

    same: bytes = b""
    skips: bool = False
    slot: Slot | None = None
    is_place: bool = False
    """Whether nothing is passed: only the place is wanted."""


@dataclasses.dataclass(frozen=True, slots=True)
class Walked:
    """What footers that took the same steps have in the slots of these, in the order of the steps."""

    is_alike: NDArray[np.bool_]
    """Which of the footers the steps led through, shape (footers,)."""

    numbers: NDArray[np.int64]
    """Of each footer the number in each slot, shape (footers, slots); arbitrary for those that are not alike."""

    begins: NDArray[np.int64]
    """Where in the footer each number begins, of the same shape."""

    ends: NDArray[np.int64]
    """Where it ends."""


def _kind(members: NDArray[np.int64], numbers: NDArray[np.int64], steps: Sequence[Step]) -> AlikeFooters:
    slots = [step.slot for step in steps if step.slot is not None]
    groups = max((slot.group for slot in slots), default=_OF_FILE) + 1
    counts = np.zeros((len(members), len(_COUNTED), groups), np.int64)
    num_rows = np.zeros(len(members), np.int64)
    for number, slot in enumerate(slots):
        if slot.group == _OF_FILE:
            num_rows = numbers[:, number]
        else:
            counts[:, _COUNTED.index(slot.what), slot.group] += numbers[:, number]
    return AlikeFooters(members, num_rows, counts)


def steps_through(footer: bytes, wanted: Sequence[str]) -> list[Step] | None:
    """The steps that lead through a footer; None where it is damaged, or has too many.

    Args:
        footer: The Thrift bytes; not trusted.
        wanted: What of it gets slots, by the words of `Slot`.
    """
    walk = _Walk(footer, wanted)
    try:
        walk.file_metadata()
    except (IndexError, ValueError, RecursionError):
        return None
    return walk.steps


class _Walk:
    """Goes through one footer, and notes the steps."""

    def __init__(self, data: bytes, wanted: Sequence[str]) -> None:
        self.data = data
        self.at = 0
        self.steps: list[Step] = []
        self._wanted = frozenset(wanted)
        self._same = b""

    def file_metadata(self) -> None:
        for field, kind in self._fields():
            if field == 2:
                self._stay_same(skip_value(self.data, self.at, kind))
            elif field == 3 and kind in INTEGERS:
                self._number(Slot(_OF_FILE, _OF_GROUP, "rows"))
            elif field == 4 and kind == LIST:
                self._place(_OF_FILE, "begin")
                for group in range(self._structs()):
                    self._place(group, "begin")
                    self._row_group(group)
                    self._place(group, "end")
                self._place(_OF_FILE, "end")
            elif field == 5 and kind == LIST:
                for _ in range(self._structs()):
                    self._key_and_value()
            else:
                self._value(kind)
        self._note(None)

    def _row_group(self, group: int) -> None:
        for field, kind in self._fields():
            if field == 1 and kind == LIST:
                for column in range(self._structs()):
                    self._column_chunk(group, column)
            elif field in _GROUP_FIELDS and kind in INTEGERS:
                self._number(Slot(group, _OF_GROUP, _GROUP_FIELDS[field]))
            else:
                self._value(kind)

    def _column_chunk(self, group: int, column: int) -> None:
        sizes = 0
        for field, kind in self._fields():
            if field != 3 or kind != STRUCT:
                self._value(kind)
                continue
            for inner, inner_kind in self._fields():
                if inner in _CHUNK_FIELDS and inner_kind in INTEGERS:
                    sizes += _CHUNK_FIELDS[inner] == "stored"
                    self._number(Slot(group, column, _CHUNK_FIELDS[inner]))
                else:
                    self._value(inner_kind)
        if sizes != 1:
            raise ValueError("a column chunk says nothing about its size")

    def _key_and_value(self) -> None:
        key = b""
        for field, kind in self._fields():
            if field == 1 and kind == BINARY:
                length, begin = read_varint(self.data, self.at)
                key = self.data[begin : begin + length]
                self._stay_same(begin + length)
            elif kind == BINARY and key == _ARROW_SCHEMA:
                self._stay_same(skip_value(self.data, self.at, kind))
            else:
                self._value(kind)

    def _fields(self) -> Iterator[tuple[int, int]]:
        """Number and type of each field of the struct at hand; its value has to be passed before the next one."""
        field = 0
        while self.data[self.at]:
            number, kind, after = read_field(self.data, self.at, field)
            if number <= field:
                raise ValueError("a field comes twice, or too late")
            self._stay_same(after)
            yield number, kind
            field = number
        self._stay_same(self.at + 1)

    def _structs(self) -> int:
        count, after = read_struct_list(self.data, self.at)
        self._stay_same(after)
        return count

    def _value(self, kind: int) -> None:
        if kind in INTEGERS:
            self._number()
        elif kind == BINARY:
            self._note(Step(skips=True))
            self.at = skip_value(self.data, self.at, kind)
        elif kind == STRUCT:
            for _, inner in self._fields():
                self._value(inner)
        elif kind in FIXED_BYTES:
            self._stay_same(self.at + FIXED_BYTES[kind])
        elif kind not in _LISTS:
            raise ValueError(f"there is no type {kind}")
        else:
            count, element, after = read_list_header(self.data, self.at)
            self._stay_same(after)
            if element in ONE_BYTE_ELEMENTS:
                self._stay_same(self.at + count)
                return
            for _ in range(count):
                self._value(element)

    def _number(self, slot: Slot | None = None) -> None:
        self._note(Step(slot=slot if slot is not None and slot.what in self._wanted else None))
        _, self.at = read_varint(self.data, self.at)

    def _place(self, group: int, what: str) -> None:
        if what in self._wanted:
            self._note(Step(slot=Slot(group, _OF_GROUP, what), is_place=True))

    def _stay_same(self, to: int) -> None:
        if to > len(self.data):
            raise IndexError
        self._same += self.data[self.at : to]
        self.at = to

    def _note(self, step: Step | None) -> None:
        if self._same:
            self.steps.append(Step(same=self._same))
            self._same = b""
        if step is not None:
            self.steps.append(step)
        if len(self.steps) > _MOST_STEPS:
            raise ValueError("it has too many steps")


def walk_together(footers: Sequence[bytes], steps: Sequence[Step]) -> Walked:
    """Has some footers, at least one, take the same steps.

    Args:
        footers: The Thrift bytes; not trusted.
        steps: `steps_through` one of them.
    """
    return _Walkers(footers).walk(steps)


class _Walkers:
    """Some footers, side by side, and how far each has been walked."""

    def __init__(self, footers: Sequence[bytes]) -> None:
        lengths = np.array([len(footer) for footer in footers], dtype=np.int64)
        self._ends = np.cumsum(lengths)
        self._firsts = self._ends - lengths
        self._at = self._firsts
        self._is_alike = np.ones(len(footers), np.bool_)
        self._bytes = b"".join(footers)
        self._last = len(self._bytes)

    def walk(self, steps: Sequence[Step]) -> Walked:
        longest = max((len(step.same) for step in steps), default=0)
        # One that has lost its way may stand anywhere, up to the end; whatever it finds there does not count.
        data = np.frombuffer(self._bytes + bytes(longest + 1), np.uint8)
        slots = sum(step.slot is not None for step in steps)
        of_slots = np.zeros((3, slots, len(self._at)), np.int64)
        slot = 0
        for step in steps:
            begin = self._at
            value: NDArray[np.int64] | None = None
            if step.same:
                here = data[self._at[:, None] + np.arange(len(step.same))]
                self._is_alike &= (here == np.frombuffer(step.same, np.uint8)).all(axis=1)
                self._go(len(step.same))
            elif not step.is_place:
                value = self._number(data)
                if step.skips:
                    self._is_alike &= value <= self._ends - self._at
                    self._go(np.where(self._is_alike, value, 0))
            if step.slot is not None:
                if value is not None:
                    of_slots[0, slot] = (value >> 1) ^ -(value & 1)
                of_slots[1, slot], of_slots[2, slot] = begin - self._firsts, self._at - self._firsts
                slot += 1
            if not self._is_alike.any():
                break
        self._is_alike &= self._at == self._ends  # who signs a footer writes more behind it
        return Walked(self._is_alike, *(numbers.T for numbers in of_slots))

    def _number(self, data: NDArray[np.uint8]) -> NDArray[np.int64]:
        byte = data[self._at]
        value = (byte & 127).astype(np.int64)
        self._go(1)
        more = byte > 127
        shift = 7
        while more.any():
            if shift > 56:  # it has more than 63 bits
                self._is_alike &= ~more
                break
            byte = data[self._at]
            value |= np.where(more, (byte & 127).astype(np.int64) << shift, 0)
            self._go(more)
            more = more & (byte > 127)
            shift += 7
        return value

    def _go(self, bytes_: NDArray[Any] | int) -> None:
        self._at = np.minimum(self._at + bytes_, self._last)
