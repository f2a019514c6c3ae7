r"""The `.npy` format: what `numpy.save` writes, read and written without `numpy.load` and `numpy.save`.

```text
\x93NUMPY  version (2 bytes)  header size (u16 in version 1, u32 in 2 and 3, little-endian)  header  elements
```

The header is the text of a dict with `descr`, `fortran_order` and `shape`. It is matched, never evaluated, so nothing
in it can run, nest or grow. Headers with records, Python objects or pickles do not match and are refused.
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
"""A longer header is refused, as NumPy refuses it; 64 dimensions need less."""

_MOST_EMPTY_BYTES = 2**31
"""What an array without elements may have if dimensions of 0 were 1: so NumPy reckons, and with many at once."""

_MAGIC = b"\x93NUMPY"
_SIZE_BYTES = {(1, 0): 2, (2, 0): 4, (3, 0): 4}
# The keys come in any order; Python 2 wrote sizes as 3L.
_ENTRY = re.compile(
    r"""\s*(?P<key_quote>['"])(?P<key>\w+)(?P=key_quote)\s*:\s*
    (?:(?P<value_quote>['"])(?P<text>[^'"\\]*)(?P=value_quote)|(?P<flag>True|False)|\((?P<sizes>[0-9L,\s]*)\))\s*(?:,|$)""",
    re.VERBOSE,
)
_DESCR = re.compile(r"[<>|=]?(?:[biufcSUmM])[0-9]{1,9}(?:\[[0-9]{0,9}[A-Za-z]{1,2}\])?")
_SIZES = re.compile(r"\s*(?:[0-9]{1,19}L?\s*(?:,\s*[0-9]{1,19}L?\s*)*,?\s*)?")


class NpyError(ValueError):
    """The bytes are no array that we read; the message says why. Never leaves the codecs."""


@dataclasses.dataclass(frozen=True, slots=True)
class NpyHeader:
    """What the header of a cell says."""

    size: int
    """Bytes before the first element."""

    dtype: np.dtype[Any]
    """Dtype as stored, byte order included."""

    fortran_order: bool
    """Whether the first dimension runs fastest."""

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
    """The header of a cell.

    Args:
        cell: The bytes, as uint8.

    Raises:
        NpyError: There is no header that we read, or the elements are fewer or more than it says.
    """
    header = _parsed(cell[: _header_size(cell)].tobytes())
    if header.size + header.payload != len(cell):
        raise NpyError(
            f"{len(cell) - header.size:,} bytes follow the header, but shape {header.shape} of {header.dtype} has "
            f"{header.payload:,}"
        )
    return header


def _header_size(cell: NDArray[np.uint8]) -> int:
    start = cell[:12].tobytes()
    if len(start) < 10 or start[:6] != _MAGIC:
        raise NpyError("it does not begin as .npy does")
    width = _SIZE_BYTES.get((start[6], start[7]))
    if width is None:
        raise NpyError(f"it is .npy of version {start[6]}.{start[7]}, and versions 1.0, 2.0 and 3.0 are known")
    size = int.from_bytes(start[8 : 8 + width], "little")
    if size > MAX_HEADER_BYTES:
        raise NpyError(f"its header has {size:,} bytes, more than {MAX_HEADER_BYTES:,}")
    if 8 + width + size > len(cell):
        raise NpyError("it ends inside its header")
    return 8 + width + size


# Cells of one column share a few headers.
@functools.lru_cache(maxsize=1024)
def _parsed(start: bytes) -> NpyHeader:
    text = start[8 + _SIZE_BYTES[start[6], start[7]] :].decode("latin1").strip()
    if not (text.startswith("{") and text.endswith("}")):
        raise NpyError("its header is no dict")
    entries: dict[str, re.Match[str]] = {}
    body, position = text[1:-1].rstrip(), 0
    while position < len(body):
        entry = _ENTRY.match(body, position)
        if entry is None or entry["key"] in entries:
            raise NpyError(f"its header has something else than descr, fortran_order and shape: {text[:80]!r}")
        entries[entry["key"]], position = entry, entry.end()
    if set(entries) != {"descr", "fortran_order", "shape"}:
        raise NpyError(f"its header has something else than descr, fortran_order and shape: {text[:80]!r}")
    flag = entries["fortran_order"]["flag"]
    if flag is None:
        raise NpyError("its fortran_order is neither True nor False")
    dtype = _dtype(entries["descr"]["text"])
    itemsize = max(dtype.itemsize, 1)
    header = NpyHeader(len(start), dtype, flag == "True", _shape(entries["shape"]["sizes"]))
    if header.payload == 0 and math.prod(max(size, 1) for size in header.shape) * itemsize > _MOST_EMPTY_BYTES:
        raise NpyError(f"it has no elements, but its shape {header.shape} is too large")
    # NumPy takes the memory of one element even where there is none.
    if header.payload == 0 and header.dtype.itemsize > MAX_HEADER_BYTES:
        raise NpyError(f"it has no elements, but {header.dtype} would need {header.dtype.itemsize:,} bytes")
    return header


def _dtype(descr: str | None) -> np.dtype[Any]:
    if descr is None or not _DESCR.fullmatch(descr):
        raise NpyError(f"its elements are {descr!r}; only numbers, booleans, times, text and bytes are read")
    try:
        return np.dtype(descr)
    except (TypeError, ValueError, OverflowError):
        raise NpyError(f"its elements are {descr!r}, which NumPy does not know") from None


def _shape(sizes: str | None) -> tuple[int, ...]:
    # `(3)` is an integer, not a tuple: one size needs its comma.
    if sizes is None or not _SIZES.fullmatch(sizes) or (sizes.strip() and "," not in sizes):
        raise NpyError("its shape is no tuple of sizes")
    shape = tuple(int(size.strip().rstrip("L")) for size in sizes.split(",") if size.strip())
    if len(shape) > 32 or any(size > 2**62 for size in shape) or math.prod(max(size, 1) for size in shape) > 2**62:
        raise NpyError(f"its shape {shape} is too large")
    return shape


def npy_header_bytes(array: NDArray[Any]) -> bytes:
    """The header that `numpy.save` writes for an array."""
    fields = np.lib.format.header_data_from_array_1_0(array)
    return _header_bytes(fields["descr"], fields["fortran_order"], array.shape)


@functools.lru_cache(maxsize=1024)
def _header_bytes(descr: str, fortran_order: bool, shape: tuple[int, ...]) -> bytes:
    written = io.BytesIO()
    fields = {"descr": descr, "fortran_order": fortran_order, "shape": shape}
    np.lib.format.write_array_header_1_0(written, fields)
    return written.getvalue()


def array_bytes(array: NDArray[Any]) -> bytes:
    """Exactly the bytes that `numpy.save` writes for an array of numbers, booleans, times, text or bytes."""
    fortran_order = array.flags.f_contiguous and not array.flags.c_contiguous
    return npy_header_bytes(array) + array.tobytes("F" if fortran_order else "C")
