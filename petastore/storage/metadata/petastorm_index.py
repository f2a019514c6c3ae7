"""Convert Petastorm's pickled row-group indexes to plain data. No I/O.

The pickle is in the metadata of `_common_metadata`. An index maps a value to the numbers of the row groups that contain
it. Files are sorted by path, and row groups are numbered from 0. Keys were pickled as NumPy scalars; here they are
Python numbers, text, bytes and decimals.
"""

from __future__ import annotations

import codecs
import dataclasses
import re
from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import numpy as np

from petastore.errors import MetadataError
from petastore.storage.metadata.pickled import PACKAGES, Name, OldText, Record, described, read_pickle

__all__ = ["PETASTORM_INDEX_KEY", "PetastormIndex", "petastorm_indexes"]

PETASTORM_INDEX_KEY = b"dataset-toolkit.rowgroups_index.v1"
"""Key of the pickled indexes in the key-value metadata of `_common_metadata`."""

_MAX_BYTES = 64 * 1024 * 1024
_MAX_OPCODES = 2_000_000
_MAX_ORDINAL = 2**31
_NAMES: dict[tuple[str, str], str] = {
    **{
        (f"{package}.etl.rowgroup_indexers", name): name
        for package in PACKAGES
        for name in ("SingleFieldIndexer", "FieldNotNullIndexer")
    },
    **{(module, "_reconstructor"): "reconstructor" for module in ("copyreg", "copy_reg")},
    **{(module, name): name for module in ("builtins", "__builtin__") for name in ("object", "set")},
    **{(module, "scalar"): "scalar" for module in ("numpy.core.multiarray", "numpy._core.multiarray")},
    ("collections", "defaultdict"): "defaultdict",
    ("numpy", "dtype"): "dtype",
    ("decimal", "Decimal"): "Decimal",
    ("_codecs", "encode"): "bytes",
}
_DECIMAL = re.compile(r"-?[0-9]{1,80}(?:\.[0-9]{0,80})?(?:E[+-]?[0-9]{1,3})?")
_DTYPE = re.compile(r"(?:b1|[iu][1248]|f[248]|[SU][0-9]{1,6}|[mM]8)")


@dataclasses.dataclass(frozen=True)
class PetastormIndex:
    """Row-group index of one column.

    It has the row groups of each value, or only the row groups with any value that is not null.
    """

    name: str
    """Name of the index."""

    column: str
    """Name of the indexed column."""

    values: Mapping[Any, frozenset[int]] | None
    """Dict from value to the numbers of its row groups, or None.

    None means that the index only has the row groups with values that are not null.
    """

    row_groups: frozenset[int]
    """Numbers of all row groups in the index."""


class _NoIndexError(ValueError):
    """The pickle is not an index of Petastorm; the message has the broken rule."""


def petastorm_indexes(pickled: bytes, *, source: str) -> dict[str, PetastormIndex]:
    r"""Convert the pickled indexes of Petastorm; return a dict from name to index.

    Args:
        pickled: Value of `PETASTORM_INDEX_KEY`, not trusted.
        source: Origin of the pickle, for messages.

    Raises:
        MetadataError: The pickle is damaged, too large, not an index, or names a class or function that Petastorm's
            indexes do not use.

    Example:
        >>> pickled = (
        ...     b"(dS'seen'\nccopy_reg\n_reconstructor\n(cpetastorm.etl.rowgroup_indexers\nFieldNotNullIndexer\n"
        ...     b"c__builtin__\nobject\nNtR(dS'_index_name'\nS'seen'\nsS'_column_name'\nS'id'\nsS'_index_data'\n"
        ...     b"c__builtin__\nset\n((lI3\naI5\natRsbs."
        ... )
        >>> petastorm_indexes(pickled, source="here")["seen"].row_groups == {3, 5}
        True
    """
    indexes = read_pickle(
        pickled,
        _NAMES,
        source=f"{source}, the row-group indexes that Petastorm pickled",
        max_bytes=_MAX_BYTES,
        max_opcodes=_MAX_OPCODES,
    )
    try:
        if not isinstance(indexes, dict):
            raise _NoIndexError(f"the indexes must be a dict, got {described(indexes)}")
        budget = _Budget()
        return {_text(name): _index(_text(name), value, budget) for name, value in indexes.items()}
    except _NoIndexError as problem:
        raise MetadataError(
            f"{source}: the row-group indexes that Petastorm pickled cannot be read: {problem}. Build them again with "
            "petastore.indexing.build_rowgroup_index"
        ) from None


class _Budget:
    """Limit on the number of parsed values and row-group numbers.

    A small pickle may refer to one large object many times, so that parsing it would take very long. A pickle without
    such references cannot exceed the limit, because each value needs an opcode.
    """

    def __init__(self) -> None:
        self.left = _MAX_OPCODES

    def spend(self, parts: int) -> None:
        """Count parsed values; raise an error if the limit is exceeded."""
        self.left -= parts
        if self.left < 0:
            raise _NoIndexError(
                f"the indexes must have at most {_MAX_OPCODES:,} values and row-group numbers together, got more"
            )


def _index(name: str, value: Any, budget: _Budget) -> PetastormIndex:
    kind, state = _kind_and_state(value)
    budget.spend(1)
    column, data = _text(state.get("_column_name")), state.get("_index_data")
    if kind == "FieldNotNullIndexer":
        return PetastormIndex(name, column, None, _ordinals(data, budget))
    if not isinstance(data, Record) or data.made_by.kind != "defaultdict":
        raise _NoIndexError(f"the values of index {name!r} must be a defaultdict, got {described(data)}")
    # Many keys may share a set. Each set is checked once, so that time is bounded by the length of the pickle.
    known: dict[int, frozenset[int]] = {}
    values: dict[Any, frozenset[int]] = {}
    budget.spend(len(data.items))
    for key, ordinals in data.items.items():
        if id(ordinals) not in known:
            known[id(ordinals)] = _ordinals(ordinals, budget)
        plain = _plain(key)
        if plain in values:
            raise _NoIndexError(f"the values of index {name!r} must be distinct, got one value twice")
        values[plain] = known[id(ordinals)]
    return PetastormIndex(name, column, MappingProxyType(values), frozenset().union(*known.values()))


def _kind_and_state(value: Any) -> tuple[str, dict[str, Any]]:
    made_by, arguments = (value.made_by, value.arguments) if isinstance(value, Record) else (None, ())
    if made_by is not None and made_by.kind == "reconstructor":
        rebuilt = [part.kind for part in arguments[:2] if isinstance(part, Name)]
        if len(arguments) != 3 or len(rebuilt) != 2 or rebuilt[1] != "object" or arguments[2] is not None:
            raise _NoIndexError(
                "copyreg._reconstructor must be called with an indexer class of Petastorm, object and None, got other "
                "arguments"
            )
        made_by, arguments = arguments[0], ()
    state = value.state[0] if isinstance(value, Record) and value.state else None
    if made_by is None or not made_by.kind.endswith("Indexer") or arguments or not isinstance(state, dict):
        raise _NoIndexError(f"each index must be an indexer of Petastorm, got {described(value)}")
    return made_by.kind, state


def _ordinals(value: Any, budget: _Budget) -> frozenset[int]:
    if isinstance(value, Record) and value.made_by.kind == "set":
        value = value.arguments[0] if len(value.arguments) == 1 else [] if not value.arguments else None
    if not isinstance(value, (set, list)):
        raise _NoIndexError(f"the row-group numbers must be a set or a list, got {described(value)}")
    budget.spend(len(value))
    ordinals = [_plain(ordinal) for ordinal in value]
    for ordinal in ordinals:
        if type(ordinal) is not int or not 0 <= ordinal < _MAX_ORDINAL:
            found = "an int out of this range" if type(ordinal) is int else described(ordinal)
            raise _NoIndexError(f"a row-group number must be an int from 0 to {_MAX_ORDINAL - 1:,}, got {found}")
    return frozenset(ordinals)


def _plain(key: Any) -> Any:
    """Convert an index key to a plain Python value."""
    if isinstance(key, OldText):
        return key.text
    if not isinstance(key, Record):
        if key is None or isinstance(key, Name):
            raise _NoIndexError(f"an indexed value must be a number, text, bytes or a decimal, got {described(key)}")
        return key
    if key.made_by.kind == "Decimal" and len(key.arguments) == 1:
        return _decimal(_text(key.arguments[0]))
    if key.made_by.kind == "scalar" and len(key.arguments) == 2:
        return _scalar(*key.arguments)
    if key.made_by.kind == "bytes":
        return _bytes(key)
    raise _NoIndexError(f"an indexed value must be a number, text, bytes or a decimal, got {described(key)}")


def _decimal(text: str) -> Decimal:
    if not _DECIMAL.fullmatch(text):
        raise _NoIndexError(f"an indexed value must be a valid decimal, got {text[:20]!r}")
    return Decimal(text)


def _scalar(dtype: Any, data: Any) -> Any:
    """Convert a pickled NumPy scalar, given its dtype and memory, to a Python value.

    The value is a number, text or bytes; a time becomes an integer.
    """
    given = dtype.arguments if isinstance(dtype, Record) and dtype.made_by.kind == "dtype" else ()
    if not given or not isinstance(given[0], str) or not _DTYPE.fullmatch(given[0]):
        raise _NoIndexError(
            "an indexed value must have a NumPy dtype of numbers, times, text or bytes, got another one"
        )
    state = dtype.state[0] if dtype.state and isinstance(dtype.state[0], tuple) else ()
    order = ">" if len(state) > 1 and state[1] == ">" else "<"
    dtype, memory = np.dtype(order + given[0]), _bytes(data)
    if len(memory) != dtype.itemsize:
        raise _NoIndexError(
            f"an indexed value of dtype {dtype} must have {dtype.itemsize} bytes, got {len(memory)} bytes"
        )
    if dtype.kind == "U":
        return _characters(memory, order)
    if dtype.kind == "S":
        return memory.rstrip(b"\0")
    if dtype.kind in "mM":
        return int.from_bytes(memory, "big" if order == ">" else "little", signed=True)
    return np.frombuffer(memory, dtype)[0].item()


def _characters(memory: bytes, order: str) -> str:
    # NumPy is not used, because it raises a SystemError for an invalid code point.
    decode = codecs.utf_32_be_decode if order == ">" else codecs.utf_32_le_decode
    try:
        return decode(memory, "strict", True)[0].rstrip("\0")
    except UnicodeDecodeError:
        raise _NoIndexError("an indexed text must be valid Unicode, got invalid code points") from None


def _bytes(data: Any) -> bytes:
    """Return the bytes in a pickled value.

    Python 2 and Python 3 pickle bytes in different forms.
    """
    if isinstance(data, Record) and data.made_by.kind == "bytes" and data.arguments:
        data = data.arguments[0]
    try:
        if isinstance(data, str):
            return data.encode("latin-1")
    except UnicodeEncodeError:
        raise _NoIndexError("an indexed value must be bytes here, got text with characters above 255") from None
    if not isinstance(data, bytes):
        raise _NoIndexError(f"an indexed value must be bytes here, got {described(data)}")
    return data


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _NoIndexError(f"names of indexes and columns must be text, got {described(value)}")
    return value.text if isinstance(value, OldText) else value
