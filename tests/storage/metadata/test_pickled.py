"""Tests of the safe pickle parser: inert values or an error, in linear time and memory, without imports or calls."""

from __future__ import annotations

import builtins
import collections
import os
import pickle
import pickletools
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from petastore.errors import MetadataError
from petastore.storage.metadata.pickled import MAX_OPCODES, MAX_PICKLE_BYTES, Name, OldText, Record, read_pickle
from tests.calls import counted_calls
from tests.tier import examples, sized

NAMES = {
    ("collections", "OrderedDict"): "ordered",
    ("copyreg", "_reconstructor"): "rebuilt",
    ("here", "Thing"): "thing",
}
NAMES |= {("copy_reg", "_reconstructor"): "rebuilt", ("__builtin__", "object"): "object"}
THING = b"chere\nThing\n"
RUNS = ((os, "system"), (builtins, "eval"), (builtins, "exec"), (builtins, "__import__"), (pickle, "loads"))


def read(data: bytes, names: Mapping[tuple[str, str], str] = NAMES) -> Any:
    """Parse a pickle; check that nothing is imported or run."""
    ran: list[str] = []
    modules = set(sys.modules)
    real = [(module, name, getattr(module, name)) for module, name in RUNS]
    # Patched by hand, because pytest's monkeypatch imports modules.
    for module, name in RUNS:
        setattr(module, name, lambda *_, name=name: ran.append(name))
    try:
        return read_pickle(data, names, source="a test")
    finally:
        for module, name, function in real:
            setattr(module, name, function)
        assert not ran
        assert set(sys.modules) == modules


def counted(data: bytes) -> Any:
    """Parse a pickle; check that the number of function calls is linear in its bytes."""
    with counted_calls() as calls:
        try:
            return read(data)
        finally:
            assert calls.count <= 1_000 + 20 * len(data)


def refused(data: bytes) -> str:
    with pytest.raises(MetadataError) as caught:
        counted(data)
    message = str(caught.value)
    assert message.startswith("a test: the pickle")
    assert len(message) < 500
    return message


def plain_values() -> st.SearchStrategy[Any]:
    texts, numbers = st.text(st.characters(exclude_categories=["Cs"])), st.integers(-(2**63), 2**64 - 1)
    atoms: st.SearchStrategy[Any] = st.one_of(
        st.none(), st.booleans(), numbers, st.floats(allow_nan=False), texts, st.binary()
    )
    keys = st.one_of(texts, numbers)
    return st.recursive(
        atoms,
        lambda inner: (
            st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(keys, inner) | st.sets(st.integers(0, 2**40))
        ),
        max_leaves=20,
    )


@given(plain_values(), st.sampled_from([3, 4, 5]))
def test_pickle_parser_equals_pickle_for_plain_values(value: Any, protocol: int) -> None:
    found = read(pickle.dumps(value, protocol), {("builtins", "set"): "set"})
    assert _sets_made(found) == value


def _sets_made(value: Any) -> Any:
    """Convert records of set calls to sets; protocols below 4 build sets by a call."""
    if isinstance(value, Record):
        return set(value.arguments[0])
    if isinstance(value, (list, tuple)):
        return type(value)(map(_sets_made, value))
    return {key: _sets_made(part) for key, part in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize("protocol", range(6))
def test_pickle_parser_reads_all_protocols(protocol: int) -> None:
    value = {"a": [1, 2.5, None, True], "ü€": (-7, 2**40, 2**63), "nested": [[], (), {}, ("x",), ("x", "y", "z")]}
    value["shared"] = value["a"]
    assert read(pickle.dumps(value, protocol)) == value
    assert read(pickletools.optimize(pickle.dumps(value, protocol))) == value


@pytest.mark.parametrize("protocol", range(6))
def test_calls_in_a_pickle_are_recorded_and_not_executed(protocol: int) -> None:
    found = read(pickle.dumps(collections.OrderedDict([("b", 1), ("a", 2)]), protocol))
    assert isinstance(found, Record)
    assert (found.made_by.kind, found.made_by.spelled) == ("ordered", "collections.OrderedDict")
    assert found.items == {"b": 1, "a": 2} or found.arguments == ([["b", 1], ["a", 2]],)


def test_pickle_parser_keeps_python_2_text_and_bytes() -> None:
    for pickled in (b"S'\\xc3\\xa9\\n\\'\"'\n.", b"U\x05\xc3\xa9\n'\".", b"T\x05\0\0\0\xc3\xa9\n'\"."):
        found = read(pickled)
        assert isinstance(found, OldText)
        assert found.encode("latin-1") == b"\xc3\xa9\n'\""
        assert found.text == "é\n'\""
    assert read(b"S'\\xff'\n.").text == "\xff"
    assert read(b"V\\u00e9\xe9\n.") == "éé"


def test_pickle_parser_never_imports_a_name() -> None:
    assert read(THING + b".") == Name("thing", "here.Thing")
    record = read(THING + b"(I1\ntR(dS'a'\nI01\nsb.")
    assert (record.arguments, record.state, record.items) == ((1,), [{"a": True}], {})
    assert record == record
    assert hash(record) != hash(read(THING + b"(I1\ntR."))


FORBIDDEN = [
    ("os", "system"), ("posix", "system"), ("nt", "system"), ("subprocess", "Popen"), ("builtins", "eval"),
    ("__builtin__", "eval"), ("builtins", "exec"), ("builtins", "getattr"), ("builtins", "__import__"),
    ("builtins", "open"), ("builtins", "compile"), ("builtins", "object"), ("pickle", "loads"), ("_pickle", "loads"),
    ("operator", "attrgetter"), ("functools", "partial"), ("types", "CodeType"), ("types", "FunctionType"),
    ("importlib", "import_module"), ("runpy", "run_path"), ("ctypes", "CDLL"), ("socket", "socket"),
    ("numpy", "load"), ("numpy.testing", "measure"), ("numpy.lib.npyio", "load"), ("pyspark.serializers", "pickle"),
    ("petastorm.codecs", "np"), ("petastorm.unischema", "pickle"), ("collections", "OrderedDict.fromkeys"),
    ("collections", "OrderedDict.__init__.__globals__"), ("collections", "_sys"), ("collections", "ordereddict"),
    ("collections ", "OrderedDict"), ("collections.OrderedDict", ""), ("", "collections.OrderedDict"),
    ("here", "Thing.x"), ("here.Thing", "x"), ("Here", "Thing"), ("here", "thing"), ("a" * 150, "b"), ("__main__", "X"),
]  # fmt: skip


def spellings(module: str, name: str) -> Iterator[bytes]:
    """Yield pickles of a name in each protocol, called and not called."""
    called = b"(S'echo'\ntR."
    for said in (
        f"c{module}\n{name}\n".encode(),
        b"\x80\x04\x8c"
        + bytes([len(module)])
        + module.encode()
        + b"\x8c"
        + bytes([len(name)])
        + name.encode()
        + b"\x93",
        f"V{module}\nV{name}\n".encode() + b"\x93",
    ):
        yield said + b"."
        yield said + called
        yield said + b")\x81."
        yield THING + b"(" + said + called[:-1] + b"tR."


def test_pickle_parser_raises_for_names_not_allowed(subtests: pytest.Subtests) -> None:
    for module, name in FORBIDDEN:
        with subtests.test(f"{module[:30]}.{name[:30]}"):
            for pickled in spellings(module, name):
                assert f"'{module}.{name}' is not one that Petastorm's metadata uses" in refused(pickled)


class Chain:
    """An object whose `__reduce__` returns a call, as a hostile writer would craft it."""

    def __init__(self, called: Callable[..., Any], *arguments: Any) -> None:
        self.asked = (called, arguments)

    def __reduce__(self) -> Any:
        return self.asked


@pytest.mark.parametrize(
    "chain",
    [
        Chain(getattr, Chain(__import__, "os"), "system"),
        Chain(Chain, Chain(getattr, Chain, "__reduce__")),
        Chain(map, Chain(getattr, dict, "get"), [1]),
        Chain(sorted, [Chain(print, "x")]),
        [collections.OrderedDict, Chain(collections.OrderedDict, Chain(vars))],
    ],
    ids=["import", "itself", "map", "nested", "in a list"],
)
def test_pickle_parser_raises_for_reduce_chains(chain: Any) -> None:
    for protocol in range(6):
        assert "is not one that Petastorm's metadata uses" in refused(pickle.dumps(chain, protocol)), protocol


U64, BIG = b"\xff" * 8, b"\xff\xff\xff\x7f"
DAMAGED = {
    "nothing": b"",
    "no end": b"N",
    "no value": b".",
    "two values": b"NN.",
    "an open mark": b"(N.",
    "an open mark below": b"N(.",
    "bytes of 2 GiB": b"B" + BIG + b"x.",
    "bytes of 16 EiB": b"\x8e" + U64 + b"x.",
    "text of 2 GiB": b"X" + BIG + b"x.",
    "text of 16 EiB": b"\x8d" + U64 + b"x.",
    "short text cut off": b"\x8c\xffabc.",
    "short bytes cut off": b"C\xffabc.",
    "old text of 4 GiB": b"T\xff\xff\xff\xff.",
    "old short text cut off": b"U\xffabc.",
    "a frame of 16 EiB": b"\x80\x04\x95" + U64 + b"N.",
    "an integer of 2 GiB": b"\x8b" + BIG + b"\x01.",
    "an integer of -1 bytes": b"\x8b\xff\xff\xff\xff.",
    "an integer of 255 bytes": b"\x8a\xff" + b"\x01" * 255 + b".",
    "an integer of 72 bits": b"\x8a\x09" + b"\x7f" * 9 + b".",
    "an integer of many digits": b"L" + b"9" * 100_000 + b"L\n.",
    "an integer of 39 digits": b"I" + b"9" * 39 + b"\n.",
    "an integer with underscores": b"I1_000\n.",
    "an integer with spaces": b"I 1\n.",
    "an integer of no digits": b"I\n.",
    "an integer in letters": b"Lseven\n.",
    "an integer in Arabic digits": "I٣\n.".encode(),
    "a float of many digits": b"F" + b"1" * 1000 + b"\n.",
    "a float in letters": b"Fseven\n.",
    "a short float": b"G\x00.",
    "no end of line": b"Sxxxx",
    "a line of 1 MiB": b"S'" + b"x" * 2**20 + b"'\n.",
    "a text without quotes": b"Sabc\n.",
    "a text of one quote": b"S'\n.",
    "a text of two kinds of quotes": b"S'a\"\n.",
    "an unknown escape": b"S'\\d'\n.",
    "half an escape": b"S'\\x1'\n.",
    "a backslash at the end": b"S'\\'\n.",
    "half a surrogate": b"V\\ud800\n.",
    "half a surrogate in UTF-8": b"\x8c\x03\xed\xa0\x80.",
    "text that is no UTF-8": b"X\x01\0\0\0\xff.",
    "half an escape of unicode": b"V\\u12\n.",
    "a name of no end": b"chere\nThing",
    "a long module": b"c" + b"x" * 1000 + b"\nThing\n.",
    "a name that is a number": b"I1\nS'x'\n\x93.",
    "a module that is None": b"NS'Thing'\n\x93.",
    "a call of a number": b"I1\n)R.",
    "a call of text": b"S'here.Thing'\n)R.",
    "a call of a tuple": b"(t)R.",
    "a call of what was made": THING + b")R)R.",
    "a new object of what was made": THING + b")R)\x81.",
    "a call with a list": THING + b"]R.",
    "a call with a dict": THING + b"}R.",
    "a call with a number": THING + b"I1\nR.",
    "a call with nothing": b")R.",
    "a call across a mark": THING + b"()R.",
    "a state for a name": THING + b"}b.",
    "a state for a list": b"]}b.",
    "a state for a dict": b"}}b.",
    "a state for nothing": b"}b.",
    "two states": THING + b")R}b}b.",
    "items for a list": b"]I1\nI2\ns.",
    "items for a name": THING + b"I1\nI2\ns.",
    "items for a number": b"I1\n(I1\nI2\nu.",
    "a key without its value": b"}(I1\nu.",
    "a dict of three": b"(I1\nI2\nI3\nd.",
    "a list as a key": b"}]Ns.",
    "a dict as a key": b"}}Ns.",
    "a tuple as a key": b"}(tNs.",
    "a set as a key": b"}\x8fNs.",
    "a list in a set": b"\x8f(]\x90.",
    "a tuple in a set": b"\x8f((t\x90.",
    "values for no list": b"I1\n(I2\ne.",
    "a value for no list": b"I1\nI2\na.",
    "values for no set": b"](I1\n\x90.",
    "a tuple of too few": b"I1\n\x87.",
    "values without a mark": b"]I1\ne.",
    "a list without a mark": b"l.",
    "a tuple without a mark": b"t.",
    "nothing to drop": b"0N.",
    "nothing to drop to": b"1N.",
    "nothing to double": b"2.",
    "nothing to remember": b"p0\nN.",
    "nothing remembered": b"g0\n.",
    "nothing remembered there": b"h\x07.",
    "nothing remembered far away": b"j\xff\xff\xff\xff.",
    "a place before the first": b"Np-1\n.",
    "a place of many digits": b"Np" + b"9" * 5000 + b"\n.",
    "protocol 6": b"\x80\x06N.",
    "protocol 255": b"\x80\xffN.",
    "no protocol": b"\x80",
    "a persistent id": b"Pid\n.",
    "a persistent id on the stack": b"NQ.",
    "an old object": b"(ihere\nThing\n.",
    "an old object on the stack": b"(" + THING + b"o.",
    "a registered name": b"\x82\x01.",
    "a registered name of two bytes": b"\x83\x01\x00.",
    "a registered name of four bytes": b"\x84\x01\0\0\0.",
    "a call by keyword": THING + b")}\x92.",
    "a frozenset": b"(\x91.",
    "a bytearray": b"\x96\x01\0\0\0\0\0\0\0x.",
    "a bytearray of 16 EiB": b"\x96" + U64 + b".",
    "a buffer": b"\x97.",
    "a buffer to be read": b"N\x98.",
    "a list in itself": b"]p0\ng0\na.",
    "a list in itself by way of a tuple": b"]p0\n(g0\ntag0\n0.",
    "a dict in itself": b"}p0\nS'a'\ng0\ns.",
    "an object in its own state": THING + b")Rp0\n}S'a'\ng0\nsb.",
    "an object in its own items": THING + b")Rp0\nI1\ng0\ns.",
    "an object as its own key": THING + b")Rp0\ng0\nNs.",
    "an object in its own arguments": THING + b"(]p0\ntRp1\n0g0\ng1\na.",
    "an object in a set in its state": THING + b")Rp0\n\x8f(g0\n\x90b.",
    "a thousand marks": b"(" * 1000 + b"t" * 1000 + b".",
    "a thousand tuples": b")" + b"\x85" * 1000 + b".",
    "a thousand lists": b"]" + b"".join(b"]q\x01" for _ in range(1000)) + b"a" * 1000 + b".",
    "a thousand states": (THING + b")R") * 1000 + b"b" * 999 + b".",
    "a deep part, shared": b")" + b"\x85" * 40 + b"q\x00" + b"\x85" * 40 + b"h\x00\x86.",
    "too many opcodes": b"N0" * (MAX_OPCODES // 2) + b"N.",
    "too many values": b"(" + b"N" * 200_000 + b"t.",
    "too many bytes": b"N" + b"0" * MAX_PICKLE_BYTES + b".",
    "a mapping of many marks": b"(((((((((((((((((((((d.",
}


def test_damaged_or_hostile_pickle_raises(subtests: pytest.Subtests) -> None:
    for name, pickled in DAMAGED.items():
        with subtests.test(name):
            refused(pickled)


def test_byte_that_is_not_an_opcode_raises(subtests: pytest.Subtests) -> None:
    others = set(range(256)) - {ord(code.code) for code in pickletools.opcodes}
    assert len(others) > 180
    for opcode in sorted(others):
        with subtests.test(opcode=opcode):
            assert f"byte 0x{opcode:02x} is not a pickle opcode" in refused(b"N" + bytes([opcode]) + b".")


def test_pickle_parser_knows_every_pickle_opcode() -> None:
    for code in pickletools.opcodes:
        if code.code != ".":
            with pytest.raises(MetadataError) as caught:
                read(code.code.encode("latin-1"))
            assert "is not a pickle opcode" not in str(caught.value)


BOMBS = {
    "tuples of two": b")q\x00" + b"".join(b"h\x00h\x00\x86q\x00" for _ in range(60)) + b".",
    "lists of many": b"]q\x00" + b"".join(b"0](" + b"h\x00" * 50 + b"eq\x00" for _ in range(50)) + b".",
    "dicts of two": b"}q\x00" + b"".join(b"0}(K\x01h\x00K\x02h\x00uq\x00" for _ in range(55)) + b".",
    "objects of two": b")q\x00" + b"".join(THING + b"(h\x00h\x00tRq\x00" for _ in range(20)) + b"h\x00.",
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS.keys())
def test_pickle_bomb_takes_linear_memory(bomb: bytes) -> None:
    tracemalloc.start()
    try:
        counted(bomb)
    except MetadataError as problem:
        assert len(str(problem)) < 500  # noqa: PT017 - a value is as good an end
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * 2**20


@pytest.mark.parametrize(
    ("piece", "end"), [(b"]", b"l."), (b"\x8f", b"l."), (b"}", b"l."), (b"chere\nThing\n)R", b"l."), (b"Np1\n0", b"N.")]
)
def test_pickle_parser_memory_is_bounded(piece: bytes, end: bytes) -> None:
    part = sized(full=1, quick=8)
    most_bytes, most_opcodes = MAX_PICKLE_BYTES // part, MAX_OPCODES // part
    pickled = b"(" + piece * (most_bytes // len(piece) - 10) + end
    tracemalloc.start()
    with pytest.raises(MetadataError):
        read_pickle(pickled, NAMES, source="a test", max_bytes=most_bytes, max_opcodes=most_opcodes)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 128 * 2**20 // part


def pieces() -> st.SearchStrategy[bytes]:
    """Draw opcodes with their arguments, complete or not."""
    small = st.integers(0, 3).map(lambda number: bytes([number]))
    simple = st.sampled_from([code.code.encode("latin-1") for code in pickletools.opcodes if code.arg is None])
    named = st.sampled_from([b"c%s\n%s\n" % (module.encode(), name.encode()) for module, name in NAMES])
    named |= st.sampled_from([b"cos\nsystem\n", b"c__builtin__\neval\n", b"cbuiltins\ngetattr\n"])
    sized = st.tuples(st.sampled_from([b"U", b"C", b"\x8c"]), st.binary(max_size=4)).map(
        lambda both: both[0] + bytes([len(both[1])]) + both[1]
    )
    lines = st.tuples(st.sampled_from(list(b"ILFSVpg")), st.sampled_from([b"0", b"1", b"'a'", b"1L", b"x"])).map(
        lambda both: bytes([both[0]]) + both[1] + b"\n"
    )
    memo = st.tuples(st.sampled_from([b"h", b"q", b"K", b"\x80", b"\x82"]), small).map(b"".join)
    return simple | simple | named | sized | lines | memo | st.binary(max_size=6)


@settings(max_examples=examples(500))
@given(st.lists(pieces(), max_size=40).map(b"".join))
def test_pickle_parser_reads_or_rejects_random_opcodes(stream: bytes) -> None:
    try:
        read(stream + b".")
    except MetadataError as problem:
        assert len(str(problem)) < 500  # noqa: PT017 - a value is as good an end
