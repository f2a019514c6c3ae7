"""Pickle opcodes as inert values: nothing that a pickle names is imported, nothing of its choosing is called. Pure.

`read_pickle` is a small machine for the opcodes of protocols 0 to 5. A name becomes a `Name`, and only where the
caller's table has that exact pair of module and name; "calling" a name makes a `Record` that says what was called with
what. Everything else is plain: numbers, text, bytes, tuples, lists, dicts and sets. What the caller makes of records is
the caller's own code.

Memory and time are bounded by the length of the pickle and by the number of its opcodes, whatever the sizes and numbers
inside say: a size is compared with the bytes that are left before anything is taken. Values are a finite tree when they
come out: a value that contains itself is refused, and so is one that is nested deeply. Parts may be shared, though, so
that a walk over the whole tree may take for ever: look at the places you know, and print no value whole.
"""

from __future__ import annotations

import codecs
import dataclasses
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from petastore.errors import MetadataError

__all__ = ["MAX_OPCODES", "MAX_PICKLE_BYTES", "Name", "OldText", "Record", "read_pickle"]

MAX_PICKLE_BYTES = 8 * 1024 * 1024
"""A longer pickle is refused."""

MAX_OPCODES = 500_000
"""A pickle of more opcodes is refused; a field of a schema takes about sixty."""

_MAX_DEPTH = 64
_MAX_STACK = 100_000
_MAX_LINE = 64 * 1024
_MAX_NAME = 200
_MAX_NUMBER = 40
_NEWEST_PROTOCOL = 5
# What `repr` of Python 2 writes, and nothing more.
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|(.?))", re.DOTALL)
_ESCAPED = {"\\": "\\", "'": "'", '"': '"', "n": "\n", "r": "\r", "t": "\t"}


@dataclasses.dataclass(frozen=True, slots=True)
class Name:
    """A name that the pickle may use, found in the caller's table."""

    kind: str
    """What the table says that it means."""

    spelled: str
    """As the pickle names it: `"numpy.int32"`."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Record:
    """What the pickle wants made: by which name, of which arguments. Nothing was made.

    Equal only to itself, so that it is a key of dicts at no cost, whatever its arguments are.
    """

    made_by: Name
    """The name that the pickle calls."""

    arguments: tuple[Any, ...]
    """With these."""

    items: dict[Any, Any] = dataclasses.field(default_factory=dict)
    """Items that it then puts into it."""

    state: list[Any] = dataclasses.field(default_factory=list)
    """The states that it then gives it: none or one."""


class OldText(str):
    """Text or bytes of Python 2, which had one type for both: each character is one byte."""

    __slots__ = ()

    @property
    def text(self) -> str:
        """As text: UTF-8 where it is that, else Latin-1."""
        try:
            return self.encode("latin-1").decode()
        except UnicodeDecodeError:
            return str(self)


class _RefusedError(ValueError):
    """The pickle is damaged or asks for what is not allowed."""


def read_pickle(
    data: bytes,
    names: Mapping[tuple[str, str], str],
    *,
    source: str,
    max_bytes: int = MAX_PICKLE_BYTES,
    max_opcodes: int = MAX_OPCODES,
) -> Any:
    r"""What a pickle describes, as inert values.

    Args:
        data: The pickle, from anywhere: it is not trusted.
        names: Each (module, name) that it may use, and what that means; it becomes `Name.kind`.
        source: Where the pickle came from, for messages.
        max_bytes: A longer one is refused.
        max_opcodes: One of more opcodes is refused.

    Returns:
        None, bool, int, float, str, `OldText`, bytes, `Name`, `Record`, and tuples, lists, dicts and sets of these.

    Raises:
        MetadataError: It is damaged, too large, or wants something that is not in `names`; the message says what.

    Example:
        >>> pickled = b"cnumpy\nint32\n(I7\nI01\ntR."
        >>> record = read_pickle(pickled, {("numpy", "int32"): "a number"}, source="here")
        >>> record.made_by.kind, record.arguments
        ('a number', (7, True))
        >>> read_pickle(b"cos\nsystem\n.", {}, source="here")
        Traceback (most recent call last):
            ...
        petastore.errors.MetadataError: here: the pickle names 'os.system', which is not allowed there; nothing of it
        was imported or run
    """
    if len(data) > max_bytes:
        raise MetadataError(f"{source}: the pickle has {len(data):,} bytes; at most {max_bytes:,} are read")
    machine = _Machine(bytes(data), names)
    try:
        value = machine.run(max_opcodes)
        _check_tree(value)
    except _RefusedError as problem:
        raise MetadataError(f"{source}: {problem}") from None
    except (ValueError, IndexError, struct.error) as problem:
        raise MetadataError(f"{source}: the pickle is damaged at byte {machine.at:,}: {problem}") from None
    return value


class _Machine:
    """The stack machine of a pickle; every method named after an opcode does what that opcode means."""

    def __init__(self, data: bytes, names: Mapping[tuple[str, str], str]) -> None:
        self.data = data
        self.at = 0
        self.names = names
        self.stack: list[Any] = []
        # Stacks below open marks, innermost last.
        self.below: list[list[Any]] = []
        self.memo: dict[int, Any] = {}

    def run(self, max_opcodes: int) -> Any:
        for _ in range(max_opcodes):
            if self.at >= len(self.data):
                raise _RefusedError("the pickle is cut off: it lacks its end")
            opcode = self.data[self.at]
            self.at += 1
            if opcode == ord("."):
                if self.below or len(self.stack) != 1:
                    raise _RefusedError("the pickle is damaged: it does not end with one value")
                return self.stack[0]
            step = _OPCODES.get(opcode)
            if step is None:
                raise _RefusedError(f"the pickle has {_told_opcode(opcode)} at byte {self.at - 1:,}")
            step(self)
            if len(self.stack) > _MAX_STACK:
                raise _RefusedError(f"the pickle holds more than {_MAX_STACK:,} values open at once")
        raise _RefusedError(f"the pickle has more than {max_opcodes:,} opcodes")

    # Reading of arguments

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise _RefusedError(
                f"the pickle is cut off: {size:,} bytes are announced at byte {self.at:,}, and "
                f"{len(self.data) - self.at:,} are left"
            )
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, layout: str) -> Any:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def sized(self, layout: str) -> bytes:
        return self.take(self.number(layout))

    def line(self, most: int) -> str:
        end = self.data.find(b"\n", self.at, self.at + most + 1)
        if end < 0:
            raise _RefusedError(f"the pickle is damaged: no end of line within {most:,} bytes of byte {self.at:,}")
        text = self.data[self.at : end]
        self.at = end + 1
        return text.decode("latin-1")

    # The stack

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        if not self.stack:
            raise _RefusedError(f"the pickle is damaged: nothing is left to take at byte {self.at - 1:,}")
        return self.stack.pop()

    def top(self, kind: type | tuple[type, ...], purpose: str) -> Any:
        if not self.stack or not isinstance(self.stack[-1], kind):
            top = type(self.stack[-1]).__name__ if self.stack else "nothing"
            raise _RefusedError(f"the pickle is damaged at byte {self.at - 1:,}: {purpose} {top}")
        return self.stack[-1]

    def mark(self) -> None:
        if len(self.below) >= _MAX_DEPTH:
            raise _RefusedError(f"the pickle is nested more than {_MAX_DEPTH} deep")
        self.below.append(self.stack)
        self.stack = []

    def since_mark(self) -> list[Any]:
        if not self.below:
            raise _RefusedError(f"the pickle is damaged: there is no mark at byte {self.at - 1:,}")
        items, self.stack = self.stack, self.below.pop()
        return items

    def drop(self) -> None:
        if self.stack:
            self.stack.pop()
        else:
            self.since_mark()

    def drop_to_mark(self) -> None:
        self.since_mark()

    # Numbers and text

    def integer_line(self) -> None:
        text = self.line(_MAX_NUMBER)
        self.push(text == "01" if text in ("00", "01") else _integer(text))

    def long_line(self) -> None:
        self.push(_integer(self.line(_MAX_NUMBER).removesuffix("L")))

    def long_bytes(self, layout: str) -> None:
        size = self.number(layout)
        if not 0 <= size <= 9:
            raise _RefusedError(f"the pickle has an integer of {size:,} bytes; integers have at most 64 bits")
        self.push(_bounded(int.from_bytes(self.take(size), "little", signed=True)))

    def float_line(self) -> None:
        self.push(float(self.line(_MAX_NUMBER)))

    def old_text_line(self) -> None:
        text = self.line(_MAX_LINE)
        if len(text) < 2 or text[0] != text[-1] or text[0] not in "'\"":
            raise _RefusedError(f"the pickle is damaged: a text without quotes before byte {self.at:,}")
        self.push(OldText(_ESCAPE.sub(_unescaped, text[1:-1])))

    def text_line(self) -> None:
        self.push(_checked_text(codecs.raw_unicode_escape_decode(self.line(_MAX_LINE).encode("latin-1"))[0]))

    # Names and what they are called with

    def name(self, module: Any, name: Any) -> None:
        spelled = (
            f"{module}.{name}" if isinstance(module, str) and isinstance(name, str) else "something that is no text"
        )
        kind = self.names.get((str(module), str(name))) if len(spelled) <= _MAX_NAME and "." in spelled else None
        if kind is None:
            raise _RefusedError(
                f"the pickle names {spelled[:_MAX_NAME]!r}, which is not allowed there; nothing of it was imported or "
                "run"
            )
        self.push(Name(kind, spelled))

    def named_in_lines(self) -> None:
        module = self.line(_MAX_NAME)
        self.name(module, self.line(_MAX_NAME))

    def named_on_stack(self) -> None:
        name, module = self.pop(), self.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise _RefusedError("the pickle names something by what is no text")
        self.name(module, name)

    def call(self) -> None:
        arguments, called = self.pop(), self.pop()
        if not isinstance(called, Name) or not isinstance(arguments, tuple):
            raise _RefusedError(
                f"the pickle calls {_told(called)} with {_told(arguments)} at byte {self.at - 1:,}; only names that "
                "it may use are called, with a tuple"
            )
        self.push(Record(called, arguments))

    def build(self) -> None:
        state = self.pop()
        record = self.top(Record, "a state is given to")
        if record.state:
            raise _RefusedError(f"the pickle gives {_told(record)} two states")
        record.state.append(state)

    # Containers

    def put_items(self, flat: list[Any]) -> None:
        target = self.top((dict, Record), "items are put into")
        if len(flat) % 2:
            raise _RefusedError(f"the pickle is damaged: a key without its value at byte {self.at - 1:,}")
        items = target.items if isinstance(target, Record) else target
        for at in range(0, len(flat), 2):
            items[_hashable(flat[at])] = flat[at + 1]

    def put_item(self) -> None:
        value, key = self.pop(), self.pop()
        self.put_items([key, value])

    def new_dict(self) -> None:
        flat = self.since_mark()
        self.push({})
        self.put_items(flat)

    def append(self) -> None:
        value = self.pop()
        self.top(list, "a value is appended to").append(value)

    def extend(self) -> None:
        values = self.since_mark()
        self.top(list, "values are appended to").extend(values)

    def add_to_set(self) -> None:
        values = self.since_mark()
        self.top(set, "values are added to").update(map(_hashable, values))

    def last(self, count: int) -> None:
        values = [self.pop() for _ in range(count)]
        self.push(tuple(reversed(values)))

    # The memo

    def keep(self, number: int) -> None:
        if number < 0:
            raise _RefusedError(f"the pickle is damaged: the place {number} in its memo")
        self.memo[number] = self.top(object, "to be remembered is")

    def recall(self, number: int) -> None:
        if number not in self.memo:
            raise _RefusedError(f"the pickle is damaged: nothing is at {number:,} in its memo")
        self.push(self.memo[number])

    def protocol(self) -> None:
        version = self.number("<B")
        if version > _NEWEST_PROTOCOL:
            raise _RefusedError(f"the pickle is of protocol {version}; 0 to {_NEWEST_PROTOCOL} are read")

    def frame(self) -> None:
        size = self.number("<Q")
        if size > len(self.data) - self.at:
            raise _RefusedError(f"the pickle is cut off: a frame of {size:,} bytes begins at byte {self.at:,}")


_OPCODES: dict[int, Callable[[_Machine], None]] = {
    ord("("): _Machine.mark,
    ord("0"): _Machine.drop,
    ord("1"): _Machine.drop_to_mark,
    ord("2"): lambda machine: machine.push(machine.top(object, "to be doubled is")),
    ord("N"): lambda machine: machine.push(None),
    0x88: lambda machine: machine.push(True),
    0x89: lambda machine: machine.push(False),
    ord("I"): _Machine.integer_line,
    ord("J"): lambda machine: machine.push(machine.number("<i")),
    ord("K"): lambda machine: machine.push(machine.number("<B")),
    ord("M"): lambda machine: machine.push(machine.number("<H")),
    ord("L"): _Machine.long_line,
    0x8A: lambda machine: machine.long_bytes("<B"),
    0x8B: lambda machine: machine.long_bytes("<i"),
    ord("F"): _Machine.float_line,
    ord("G"): lambda machine: machine.push(machine.number(">d")),
    ord("S"): _Machine.old_text_line,
    ord("T"): lambda machine: machine.push(OldText(machine.sized("<I").decode("latin-1"))),
    ord("U"): lambda machine: machine.push(OldText(machine.sized("<B").decode("latin-1"))),
    ord("V"): _Machine.text_line,
    0x8C: lambda machine: machine.push(machine.sized("<B").decode()),
    ord("X"): lambda machine: machine.push(machine.sized("<I").decode()),
    0x8D: lambda machine: machine.push(machine.sized("<Q").decode()),
    ord("C"): lambda machine: machine.push(machine.sized("<B")),
    ord("B"): lambda machine: machine.push(machine.sized("<I")),
    0x8E: lambda machine: machine.push(machine.sized("<Q")),
    ord("c"): _Machine.named_in_lines,
    0x93: _Machine.named_on_stack,
    ord("R"): _Machine.call,
    0x81: _Machine.call,
    ord("b"): _Machine.build,
    ord("}"): lambda machine: machine.push({}),
    ord("d"): _Machine.new_dict,
    ord("s"): _Machine.put_item,
    ord("u"): lambda machine: machine.put_items(machine.since_mark()),
    ord("]"): lambda machine: machine.push([]),
    ord("l"): lambda machine: machine.push(machine.since_mark()),
    ord("a"): _Machine.append,
    ord("e"): _Machine.extend,
    0x8F: lambda machine: machine.push(set()),
    0x90: _Machine.add_to_set,
    ord(")"): lambda machine: machine.push(()),
    ord("t"): lambda machine: machine.push(tuple(machine.since_mark())),
    0x85: lambda machine: machine.last(1),
    0x86: lambda machine: machine.last(2),
    0x87: lambda machine: machine.last(3),
    ord("p"): lambda machine: machine.keep(_integer(machine.line(_MAX_NUMBER))),
    ord("q"): lambda machine: machine.keep(machine.number("<B")),
    ord("r"): lambda machine: machine.keep(machine.number("<I")),
    0x94: lambda machine: machine.keep(len(machine.memo)),
    ord("g"): lambda machine: machine.recall(_integer(machine.line(_MAX_NUMBER))),
    ord("h"): lambda machine: machine.recall(machine.number("<B")),
    ord("j"): lambda machine: machine.recall(machine.number("<I")),
    0x80: _Machine.protocol,
    0x95: _Machine.frame,
}

_REFUSED_OPCODES = {
    ord("P"): "a persistent id",
    ord("Q"): "a persistent id",
    ord("i"): "an old-style object (INST)",
    ord("o"): "an old-style object (OBJ)",
    0x82: "a name by its number in a registry (EXT1)",
    0x83: "a name by its number in a registry (EXT2)",
    0x84: "a name by its number in a registry (EXT4)",
    0x91: "a frozenset",
    0x92: "a call by keyword (NEWOBJ_EX)",
    0x96: "a bytearray",
    0x97: "a buffer from outside",
    0x98: "a buffer from outside",
}


def _told_opcode(opcode: int) -> str:
    told = _REFUSED_OPCODES.get(opcode)
    return f"no opcode (byte 0x{opcode:02x})" if told is None else f"{told}, which is not allowed,"


def _told(value: Any) -> str:
    if isinstance(value, Name):
        return repr(value.spelled)
    if isinstance(value, Record):
        return f"what {value.made_by.spelled!r} makes"
    return f"a value of type {type(value).__name__}"


def _integer(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise _RefusedError(f"the pickle is damaged: {text!r} is no integer")
    return _bounded(int(text))


def _bounded(number: int) -> int:
    # More bits would let crafted keys of a dict meet in one place, and have no meaning here.
    if not -(2**63) <= number < 2**64:
        raise _RefusedError("the pickle has an integer of more than 64 bits")
    return number


def _unescaped(match: re.Match[str]) -> str:
    if match[1] is not None:
        return chr(int(match[1], 16))
    if match[2] not in _ESCAPED:
        raise _RefusedError(f"the pickle is damaged: a text with the escape {match[0]!r}")
    return _ESCAPED[match[2]]


def _checked_text(text: str) -> str:
    text.encode()  # half a surrogate is no text
    return text


def _hashable(key: Any) -> Any:
    """The key, if it is one whose hash takes no walk over other values."""
    if key is not None and not isinstance(key, (str, bytes, int, float, Name, Record)):
        raise _RefusedError(f"the pickle has {_told(key)} as a key, which is not allowed")
    return key


def _check_tree(root: Any) -> None:
    """Refuses a value that contains itself or is nested deeply; looks at each container once."""
    if not isinstance(root, _CONTAINERS):
        return
    heights: dict[int, int] = {}
    path: list[tuple[Any, Iterator[Any]]] = [(root, _containers_in(root))]
    open_ids, tallest = {id(root)}, [0]
    while path:
        value, parts = path[-1]
        part = next((part for part in parts if _is_news(part, heights, open_ids, tallest)), None)
        if part is not None:
            path.append((part, _containers_in(part)))
            open_ids.add(id(part))
            tallest.append(0)
        else:
            path.pop()
            open_ids.discard(id(value))
            heights[id(value)] = height = tallest.pop() + 1
            if tallest:
                tallest[-1] = max(tallest[-1], height)
        if len(path) + (tallest[-1] if tallest else 0) > _MAX_DEPTH:
            raise _RefusedError(f"the pickle is nested more than {_MAX_DEPTH} deep")


def _is_news(part: Any, heights: Mapping[int, int], open_ids: set[int], tallest: list[int]) -> bool:
    if id(part) in open_ids:
        raise _RefusedError("the pickle has a value that contains itself")
    tallest[-1] = max(tallest[-1], heights.get(id(part), 0))
    return id(part) not in heights


_CONTAINERS = (tuple, list, dict, set, Record)


def _containers_in(value: Any) -> Iterator[Any]:
    if isinstance(value, Record):
        parts: Iterator[Any] = iter((value.arguments, value.items, value.state))
    elif isinstance(value, dict):
        parts = (part for item in value.items() for part in item)
    else:
        parts = iter(value)
    return (part for part in parts if isinstance(part, _CONTAINERS))
