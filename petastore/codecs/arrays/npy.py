r"""Parser and writer of the `.npy` format, without `numpy.load` and `numpy.save`.

```text
\x93NUMPY  version (2 bytes)  header size (u16 in version 1, u32 in 2 and 3, little-endian)  header  elements
```

The header is the text of a dict with `descr`, `fortran_order` and `shape`. A regular expression parses this text, so
code in the header is never evaluated. Headers with records, Python objects or pickles do not match and are rejected.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import math
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["MAX_HEADER_BYTES", "NpyError", "NpyHeader", "array_bytes", "header_of", "npy_header_bytes"]

MAX_HEADER_BYTES = 10_000
"""Maximum header size, as in NumPy; 64 dimensions need less."""

_MOST_EMPTY_BYTES = 2**31
"""Maximum bytes of an array without elements, counted as if each dimension of size 0 had size 1, as NumPy counts."""

_MAGIC = b"\x93NUMPY"
_SIZE_BYTES = {(1, 0): 2, (2, 0): 4, (3, 0): 4}
# The keys may come in any order. Sizes may end in L, because Python 2 wrote 3 as 3L.
_ENTRY = re.compile(
    r"""\s*(?P<key_quote>['"])(?P<key>\w+)(?P=key_quote)\s*:\s*
    (?:(?P<value_quote>['"])(?P<text>[^'"\\]*)(?P=value_quote)|(?P<flag>True|False)|\((?P<sizes>[0-9L,\s]*)\))\s*(?:,|$)""",
    re.VERBOSE,
)
_DESCR = re.compile(r"[<>|=]?(?:[biufcSUmM])[0-9]{1,9}(?:\[[0-9]{0,9}[A-Za-z]{1,2}\])?")
_SIZES = re.compile(r"\s*(?:[0-9]{1,19}L?\s*(?:,\s*[0-9]{1,19}L?\s*)*,?\s*)?")


class NpyError(ValueError):
    """The bytes are not a supported `.npy` array; the message has the reason.

    Codecs convert this error to `DecodeError`.
    """


@dataclasses.dataclass(frozen=True, slots=True)
class NpyHeader:
    """Parsed header of a `.npy` cell."""

    size: int
    """Bytes before the first element."""

    dtype: np.dtype[Any]
    """Dtype as stored, byte order included."""

    fortran_order: bool
    """Whether the array is stored in Fortran order."""

    shape: tuple[int, ...]
    """Sizes of the dimensions."""

    payload: int = dataclasses.field(init=False)
    """Bytes of all elements."""

    strides: tuple[int, ...] = dataclasses.field(init=False)
    """Bytes from one element to the next, in each dimension."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "payload", math.prod(self.shape) * self.dtype.itemsize)
        sizes = self.shape if self.fortran_order else self.shape[::-1]
        strides = [self.dtype.itemsize * math.prod(sizes[:position]) for position in range(len(sizes))]
        object.__setattr__(self, "strides", tuple(strides if self.fortran_order else strides[::-1]))


def header_of(cell: NDArray[np.uint8]) -> NpyHeader:
    """Parse and check the `.npy` header of a cell.

    Args:
        cell: The bytes, as uint8.

    Raises:
        NpyError: The header is missing or unsupported, or the bytes after it do not match its shape and dtype.
    """
    header = _parsed(cell[: _header_size(cell)].tobytes())
    if header.size + header.payload != len(cell):
        raise NpyError(
            f"the .npy header declares shape {header.shape} of {header.dtype}, which takes {header.payload:,} bytes, "
            f"but {len(cell) - header.size:,} bytes follow"
        )
    return header


def _header_size(cell: NDArray[np.uint8]) -> int:
    start = cell[:12].tobytes()
    if len(start) < 10 or start[:6] != _MAGIC:
        raise NpyError("the cell does not begin with the .npy magic bytes")
    width = _SIZE_BYTES.get((start[6], start[7]))
    if width is None:
        raise NpyError(f"the .npy version must be 1.0, 2.0 or 3.0, got {start[6]}.{start[7]}")
    size = int.from_bytes(start[8 : 8 + width], "little")
    if size > MAX_HEADER_BYTES:
        raise NpyError(f"the .npy header must have at most {MAX_HEADER_BYTES:,} bytes, got {size:,}")
    if 8 + width + size > len(cell):
        raise NpyError("the cell is truncated inside the .npy header")
    return 8 + width + size


# Cached, because most cells of a column have the same header.
@functools.lru_cache(maxsize=1024)
def _parsed(start: bytes) -> NpyHeader:
    text = start[8 + _SIZE_BYTES[start[6], start[7]] :].decode("latin1").strip()
    if not (text.startswith("{") and text.endswith("}")):
        raise NpyError("the .npy header is not a dict")
    entries: dict[str, re.Match[str]] = {}
    body, position = text[1:-1].rstrip(), 0
    while position < len(body):
        entry = _ENTRY.match(body, position)
        if entry is None or entry["key"] in entries:
            raise NpyError(f"the .npy header must have descr, fortran_order and shape only, got {text[:80]!r}")
        entries[entry["key"]], position = entry, entry.end()
    if set(entries) != {"descr", "fortran_order", "shape"}:
        raise NpyError(f"the .npy header must have descr, fortran_order and shape only, got {text[:80]!r}")
    flag = entries["fortran_order"]["flag"]
    if flag is None:
        raise NpyError("fortran_order in the .npy header must be True or False, got another value")
    dtype = _dtype(entries["descr"]["text"])
    itemsize = max(dtype.itemsize, 1)
    header = NpyHeader(len(start), dtype, flag == "True", _shape(entries["shape"]["sizes"]))
    if header.payload == 0 and math.prod(max(size, 1) for size in header.shape) * itemsize > _MOST_EMPTY_BYTES:
        raise NpyError(f"the array has no elements, but its shape {header.shape} is too large")
    # NumPy allocates the memory of one element even for empty arrays.
    if header.payload == 0 and header.dtype.itemsize > MAX_HEADER_BYTES:
        raise NpyError(
            f"the array has no elements, but one element of {header.dtype} would take {header.dtype.itemsize:,} bytes"
        )
    return header


def _dtype(descr: str | None) -> np.dtype[Any]:
    if descr is None or not _DESCR.fullmatch(descr):
        raise NpyError(f"the dtype in the .npy header must be numbers, booleans, times, text or bytes, got {descr!r}")
    try:
        return np.dtype(descr)
    except (TypeError, ValueError, OverflowError):
        raise NpyError(f"the dtype {descr!r} in the .npy header is unknown to NumPy") from None


def _shape(sizes: str | None) -> tuple[int, ...]:
    # A single size must have a comma, because `(3)` is an integer in Python, not a tuple.
    if sizes is None or not _SIZES.fullmatch(sizes) or (sizes.strip() and "," not in sizes):
        raise NpyError("the shape in the .npy header is not a tuple of ints")
    shape = tuple(int(size.strip().rstrip("L")) for size in sizes.split(",") if size.strip())
    if len(shape) > 32 or any(size > 2**62 for size in shape) or math.prod(max(size, 1) for size in shape) > 2**62:
        raise NpyError(f"the shape {shape} in the .npy header is too large")
    return shape


def npy_header_bytes(array: NDArray[Any]) -> bytes:
    """Return the header that `numpy.save` writes for an array."""
    fields = np.lib.format.header_data_from_array_1_0(array)
    return _header_bytes(fields["descr"], fields["fortran_order"], array.shape)


@functools.lru_cache(maxsize=1024)
def _header_bytes(descr: str, fortran_order: bool, shape: tuple[int, ...]) -> bytes:
    written = io.BytesIO()
    fields = {"descr": descr, "fortran_order": fortran_order, "shape": shape}
    np.lib.format.write_array_header_1_0(written, fields)
    return written.getvalue()


def array_bytes(array: NDArray[Any]) -> bytes:
    """Return exactly the bytes that `numpy.save` writes for an array without objects."""
    fortran_order = array.flags.f_contiguous and not array.flags.c_contiguous
    return npy_header_bytes(array) + array.tobytes("F" if fortran_order else "C")
