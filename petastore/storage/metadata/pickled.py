"""Parse untrusted pickles as plain data: nothing is imported or called. No I/O.

`pickletools` of the standard library reads the arguments of opcodes. A global name becomes a `Name` if the caller's
table has exactly this pair of module and name. A call of such a name becomes a `Record`. All other values must be
numbers, text, bytes, tuples, lists, dicts or sets.

The length of the pickle and the number of its opcodes limit memory and time. Even if the pickle declares a larger size,
no read returns more bytes than are left. The value is a finite tree of at most 64 levels. Parts of the tree may be
shared, so that visiting the whole tree may take exponential time. Read only known places of the tree, and never print
the whole value.
"""

from __future__ import annotations

import codecs
import dataclasses
import functools
import io
import pickletools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from petastore.errors import MetadataError

__all__ = ["MAX_OPCODES", "MAX_PICKLE_BYTES", "PACKAGES", "Name", "OldText", "Record", "described", "read_pickle"]

PACKAGES = ("petastorm", "dataset_toolkit", "av.ml.dataset_toolkit", "av.experimental.deepdrive.dataset_toolkit")
"""Packages whose classes pickles may name: Petastorm and its predecessors."""

MAX_PICKLE_BYTES = 8 * 1024 * 1024
"""Default maximum size of a pickle in bytes."""

MAX_OPCODES = 500_000
"""Default maximum opcodes of a pickle; a schema has about sixty for each field."""

_Step: TypeAlias = "Callable[[_Machine, Any], Any]"
_MAX_DEPTH = 64
_TOO_DEEP = f"a value contains itself or is nested more than {_MAX_DEPTH} levels deep"
_MAX_STACK = 100_000
_MAX_LINE = 64 * 1024
_MAX_NAME = 200
_MAX_NUMBER = 40
_NEWEST_PROTOCOL = 5
# The escapes that `repr` of Python 2 writes.
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|(.?))", re.DOTALL)
_ESCAPED = {"\\": "\\", "'": "'", '"': '"', "n": "\n", "r": "\r", "t": "\t"}


@dataclasses.dataclass(frozen=True, slots=True)
class Name:
    """Global name in a pickle (class or function) that the caller's table allows."""

    kind: str
    """The meaning of the name, from the table."""

    spelled: str
    """The name as the pickle spells it: `"numpy.int32"`."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Record:
    """Call in the pickle, which is recorded but not executed.

    A record is equal only to itself, so that it can be a key of dicts with any arguments.
    """

    made_by: Name
    """The name that the pickle calls."""

    arguments: tuple[Any, ...]
    """Arguments of the call."""

    items: dict[Any, Any] = dataclasses.field(default_factory=dict)
    """Dict items that the pickle sets after the call."""

    state: list[Any] = dataclasses.field(default_factory=list)
    """State that the pickle sets after the call: a list with one state, or empty."""


def described(value: Any) -> str:
    """Describe a value in a few words, for a message.

    The value is not printed completely, because shared parts would be printed many times.
    """
    if isinstance(value, Name):
        return f"the name {value.spelled!r}"
    if isinstance(value, Record):
        first = value.arguments[0] if value.arguments else None
        called = first if value.made_by.kind == "reconstructor" and isinstance(first, Name) else value.made_by
        return f"an object made by {called.spelled!r}"
    return "None" if value is None else f"a {type(value).__name__}"


class OldText(str):
    """A `str` of Python 2, which may be text or bytes; each character is one byte."""

    __slots__ = ()

    @property
    def text(self) -> str:
        """The text, decoded as UTF-8 if it is valid UTF-8, otherwise as Latin-1."""
        try:
            return self.encode("latin-1").decode()
        except UnicodeDecodeError:
            return str(self)


def read_pickle(
    data: bytes,
    names: Mapping[tuple[str, str], str],
    *,
    source: str,
    max_bytes: int = MAX_PICKLE_BYTES,
    max_opcodes: int = MAX_OPCODES,
) -> Any:
    r"""Convert an untrusted pickle to plain data; nothing is imported or called.

    Args:
        data: The pickle.
        names: Allowed pairs of module and name, each with its meaning, which becomes `Name.kind`.
        source: Origin of the pickle, for messages.
        max_bytes: Maximum bytes of the pickle.
        max_opcodes: Maximum number of opcodes of the pickle.

    Returns:
        None, bool, int, float, str, `OldText`, bytes, `Name`, `Record`, and tuples, lists, dicts and sets of these.

    Raises:
        MetadataError: The pickle is damaged, too large, or uses a name or an opcode that is not allowed.

    Example:
        >>> pickled = b"cnumpy\nint32\n(I7\nI01\ntR."
        >>> record = read_pickle(pickled, {("numpy", "int32"): "a number"}, source="here")
        >>> record.made_by.kind, record.arguments
        ('a number', (7, True))
        >>> read_pickle(b"cos\nsystem\n.", {}, source="here")
        Traceback (most recent call last):
            ...
        petastore.errors.MetadataError: here: the pickle is rejected at byte 11: the name 'os.system' is not one that
        Petastorm's metadata uses. Nothing was imported or executed
    """
    if len(data) > max_bytes:
        raise MetadataError(f"{source}: the pickle must have at most {max_bytes:,} bytes, got {len(data):,}")
    machine = _Machine(data, names)
    try:
        value = machine.run(max_opcodes)
        _require(_height(value, {}, _MAX_DEPTH) <= _MAX_DEPTH, _TOO_DEEP)
    except (ValueError, LookupError) as problem:
        raise MetadataError(f"{source}: the pickle is rejected at byte {machine.stream.tell():,}: {problem}") from None
    return value


class _Machine:
    """Interpreter of pickle opcodes (a stack machine) that builds only plain data."""

    def __init__(self, data: bytes, names: Mapping[tuple[str, str], str]) -> None:
        self.stream = io.BytesIO(data)
        self.size = len(data)
        self.names = names
        self.stack: list[Any] = []
        # For each MARK that is still open, the stack below it; the innermost is last.
        self.below: list[list[Any]] = []
        self.memo: dict[int, Any] = {}

    def run(self, max_opcodes: int) -> Any:
        for _ in range(max_opcodes):
            code = self.stream.read(1)
            if code == b".":
                _require(not self.below and len(self.stack) == 1, "the pickle does not end with one value")
                return self.stack[0]
            if code not in _OPCODES:
                raise ValueError(f"byte 0x{code.hex()} is not a pickle opcode" if code else "the pickle is truncated")
            read_argument, step = _OPCODES[code]
            step(self, read_argument(self.stream))
            _require(len(self.stack) <= _MAX_STACK, "too many values are open at once")
        raise ValueError(f"the pickle has more than {max_opcodes:,} opcodes")

    def top(self, *kinds: type) -> Any:
        _require(isinstance(self.stack[-1], kinds), "an opcode has an operand of the wrong type")
        return self.stack[-1]

    def mark(self) -> None:
        _require(len(self.below) < _MAX_DEPTH, _TOO_DEEP)
        self.below.append(self.stack)
        self.stack = []

    def since_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.below.pop()
        return items

    def last(self, count: int) -> tuple[Any, ...]:
        values = [self.stack.pop() for _ in range(count)]
        return tuple(reversed(values))

    def name(self, module: Any, name: Any) -> None:
        _require(isinstance(module, str) and isinstance(name, str), "a name is not text")
        spelled, kind = f"{module}.{name}", self.names.get((module, name))
        if kind is None:
            raise ValueError(
                f"the name {spelled[:_MAX_NAME]!r} is not one that Petastorm's metadata uses. Nothing was imported or "
                "executed"
            )
        self.stack.append(Name(kind, spelled))

    def call(self) -> None:
        called, arguments = self.last(2)
        _require(
            isinstance(called, Name) and isinstance(arguments, tuple),
            "a call must have a class or function and a tuple of arguments",
        )
        self.stack.append(Record(called, arguments))

    def build(self) -> None:
        state = self.stack.pop()
        states = self.top(Record).state
        _require(not states, "an object has two states")
        states.append(state)

    def put_items(self, flat: Iterable[Any]) -> None:
        target, rest = self.top(dict, Record), iter(flat)
        items = target.items if isinstance(target, Record) else target
        for key, value in zip(rest, rest, strict=True):
            items[_hashable(key)] = value

    def new_container(self, kind: Callable[[list[Any]], Any]) -> None:
        values = self.since_mark()
        self.stack.append(kind(values))

    def new_dict(self) -> None:
        flat = self.since_mark()
        self.stack.append({})
        self.put_items(flat)

    def append(self, values: Iterable[Any]) -> None:
        self.top(list).extend(values)

    def add_items(self, values: Iterable[Any]) -> None:
        self.top(set).update(map(_hashable, values))

    def check_frame(self, size: int) -> None:
        _require(size <= self.size - self.stream.tell(), "a frame is longer than the pickle")

    def memoize(self, number: int) -> None:
        _require(number >= 0, "a memo index is negative")
        self.memo[number] = self.stack[-1]


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise ValueError(problem)


def _line(stream: io.BytesIO, most: int) -> str:
    line = stream.readline(most + 1)
    _require(line.endswith(b"\n"), f"a line has no end within {most:,} bytes")
    return line[:-1].decode("latin-1")


def _integer(text: str) -> int:
    _require(re.fullmatch(r"[+-]?[0-9]+", text) is not None, f"{text!r} is not an integer")
    return _bounded(int(text))


def _bounded(number: int) -> int:
    # Larger integers do not occur in schemas and indexes, and could be chosen so that they collide as dict keys.
    _require(-(2**63) <= number < 2**64, "an integer has more than 64 bits")
    return number


def _valid_text(text: str) -> str:
    text.encode()  # raises UnicodeEncodeError for a lone surrogate
    return text


def _unicode(line: str) -> str:
    return _valid_text(codecs.raw_unicode_escape_decode(line.encode("latin-1"))[0])


def _old_text(line: str) -> OldText:
    _require(len(line) >= 2 and line[0] == line[-1] and line[0] in "'\"", "a text has no quotes")
    return OldText(_ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else _ESCAPED[match[2]], line[1:-1]))


def _hashable(key: Any) -> Any:
    # Containers are rejected as keys, because hashing a tuple visits all values inside it.
    _require(key is None or isinstance(key, (str, bytes, int, float, Name, Record)), "a key is a container")
    return key


def _height(value: Any, heights: dict[int, int], most: int) -> int:
    """Return the number of levels of nested containers in a value.

    Raise an error if there are more than `most` levels; a value that contains itself has infinitely many.
    """
    if isinstance(value, Record):
        parts: Iterable[Any] = (value.arguments, value.items, value.state)
    elif isinstance(value, dict):
        parts = (*value.keys(), *value.values())
    elif isinstance(value, (tuple, list, set)):
        parts = value
    else:
        return 0
    _require(most > 0, _TOO_DEEP)
    if id(value) not in heights:
        heights[id(value)] = 1 + max((_height(part, heights, most - 1) for part in parts), default=0)
    return heights[id(value)]


def _push(value_of: Callable[[Any], Any]) -> _Step:
    return lambda machine, argument: machine.stack.append(value_of(argument))


def _rejection(opcode: str) -> _Step:
    return lambda _machine, _argument: _require(False, f"the opcode {opcode} is not allowed")


_BOUNDED, _TEXT, _AS_IT_IS = _push(_bounded), _push(_valid_text), _push(lambda argument: argument)
_NUMBER_LINES = ("INT", "LONG", "FLOAT", "PUT", "GET")
_STEPS: dict[str, _Step] = {
    "PROTO": lambda _, version: _require(version <= _NEWEST_PROTOCOL, f"protocol {version} is not known"),
    "FRAME": _Machine.check_frame,
    "MARK": lambda machine, _: machine.mark(),
    "POP": lambda machine, _: machine.stack.pop() if machine.stack else machine.since_mark(),
    "POP_MARK": lambda machine, _: machine.since_mark(),
    "DUP": lambda machine, _: machine.stack.append(machine.stack[-1]),
    "NONE": _push(lambda _: None),
    "NEWTRUE": _push(lambda _: True),
    "NEWFALSE": _push(lambda _: False),
    "INT": _push(lambda line: line == "01" if line in ("00", "01") else _integer(line)),
    "LONG": _push(lambda line: _integer(line.removesuffix("L"))),
    "FLOAT": _push(float),
    "STRING": _push(_old_text),
    "UNICODE": _push(_unicode),
    **dict.fromkeys(("BININT", "BININT1", "BININT2", "LONG1", "LONG4"), _BOUNDED),
    **dict.fromkeys(("BINUNICODE", "BINUNICODE8", "SHORT_BINUNICODE"), _TEXT),
    **dict.fromkeys(("BINSTRING", "SHORT_BINSTRING"), _push(OldText)),
    **dict.fromkeys(("BINFLOAT", "BINBYTES", "BINBYTES8", "SHORT_BINBYTES"), _AS_IT_IS),
    "EMPTY_TUPLE": _push(lambda _: ()),
    "EMPTY_LIST": _push(lambda _: []),
    "EMPTY_DICT": _push(lambda _: {}),
    "EMPTY_SET": _push(lambda _: set()),
    "TUPLE1": lambda machine, _: machine.stack.append(machine.last(1)),
    "TUPLE2": lambda machine, _: machine.stack.append(machine.last(2)),
    "TUPLE3": lambda machine, _: machine.stack.append(machine.last(3)),
    "TUPLE": lambda machine, _: machine.new_container(tuple),
    "LIST": lambda machine, _: machine.new_container(list),
    "DICT": lambda machine, _: machine.new_dict(),
    "APPEND": lambda machine, _: machine.append(machine.last(1)),
    "APPENDS": lambda machine, _: machine.append(machine.since_mark()),
    "SETITEM": lambda machine, _: machine.put_items(machine.last(2)),
    "SETITEMS": lambda machine, _: machine.put_items(machine.since_mark()),
    "ADDITEMS": lambda machine, _: machine.add_items(machine.since_mark()),
    "GLOBAL": lambda machine, module: machine.name(module, _line(machine.stream, _MAX_LINE)),
    "STACK_GLOBAL": lambda machine, _: machine.name(*machine.last(2)),
    **dict.fromkeys(("REDUCE", "NEWOBJ"), lambda machine, _: machine.call()),
    "BUILD": lambda machine, _: machine.build(),
    "PUT": lambda machine, line: machine.memoize(_integer(line)),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT"), _Machine.memoize),
    "MEMOIZE": lambda machine, _: machine.memoize(len(machine.memo)),
    "GET": lambda machine, line: machine.stack.append(machine.memo[_integer(line)]),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), lambda machine, number: machine.stack.append(machine.memo[number])),
}


def _argument_reader(opcode: pickletools.OpcodeInfo) -> Callable[[io.BytesIO], Any]:
    # Lines are parsed here, because pickletools does not limit their length, and decodes text of Python 2 as ASCII.
    if opcode.name not in _STEPS or opcode.arg is None:
        return lambda _stream: None
    if opcode.arg.n == pickletools.UP_TO_NEWLINE:
        return functools.partial(_line, most=_MAX_NUMBER if opcode.name in _NUMBER_LINES else _MAX_LINE)
    return opcode.arg.reader


_OPCODES: dict[bytes, tuple[Callable[[io.BytesIO], Any], _Step]] = {
    opcode.code.encode("latin-1"): (_argument_reader(opcode), _STEPS.get(opcode.name, _rejection(opcode.name)))
    for opcode in pickletools.opcodes
    if opcode.name != "STOP"
}
