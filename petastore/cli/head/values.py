"""One value of a dataset in a line of words, or as JSON."""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.cli.printable import printable

__all__ = ["as_json", "in_words", "shape_in_words"]

_MOST_CHARACTERS = 1000
"""Of a text, more than a line of any terminal; the rest is not looked at."""

_MOST_BYTES = 24
_MOST_ITEMS = 8


def in_words(value: Any, dtype_name: str) -> str:
    r"""A value in one line that a terminal may be given.

    Args:
        value: A NumPy scalar or array, `str`, `bytes`, `Decimal`, or what is nested in plain Parquet.
        dtype_name: Of its field, as the schema document spells it.

    Example:
        >>> in_words(np.arange(12, dtype="float32").reshape(4, 3) / 8, "float32")
        'float32 4×3 [0 0.125 0.25 0.375 0.5 0.625 0.75 0.875 …]'
        >>> in_words("two\nlines", "str"), in_words(b"\x89PNG", "bytes"), in_words(np.int64(1200), "int64")
        ('two\\nlines', "b'\\x89PNG'", '1200')
    """
    if isinstance(value, np.ndarray):
        return f"{dtype_name} {shape_in_words(value.shape)} {_items(value)}"
    if isinstance(value, str):
        return printable(value[:_MOST_CHARACTERS]) + ("…" if len(value) > _MOST_CHARACTERS else "")
    if isinstance(value, bytes):
        more = f"… {len(value):,} bytes" if len(value) > _MOST_BYTES else ""
        return f"{value[:_MOST_BYTES]!r}{more}"
    return printable(str(value)[:_MOST_CHARACTERS])


def shape_in_words(shape: tuple[int, ...]) -> str:
    """The shape of an array.

    Example:
        >>> shape_in_words((1024, 3))
        '1,024×3'
    """
    return "×".join(f"{size:,}" for size in shape)


def _items(array: NDArray[Any]) -> str:
    shown = [_item(array.flat[place]) for place in range(min(array.size, _MOST_ITEMS))]
    return f"[{' '.join(shown)}{' …' if array.size > _MOST_ITEMS else ''}]"


def _item(value: Any) -> str:
    if value is None:
        return "missing"
    if isinstance(value, (np.floating, np.complexfloating)):
        return f"{value:.4g}"
    if isinstance(value, (str, bytes)):
        # With quotes: blanks inside do not look like those between.
        return f"{value[:_MOST_BYTES]!r}{'…' if len(value) > _MOST_BYTES else ''}"
    return printable(str(value))


def as_json(value: Any) -> Any:
    r"""A value as JSON has it: nothing is shortened.

    Numbers are numbers; NaN and infinities, which JSON does not have, are `"nan"`, `"inf"` and `"-inf"`, so that none
    of them looks as if it was missing. Times are text as NumPy writes it, decimals are text, bytes are text in base64.
    Arrays are nested lists; what is nested in plain Parquet are objects and lists.

    Args:
        value: A NumPy scalar or array, `str`, `bytes`, `Decimal`, None, or a dict or list of such.

    Example:
        >>> as_json(np.array([[1, 2], [3, 4]])), as_json(np.float64("nan")), as_json(b"\0\1"), as_json(None)
        ([[1, 2], [3, 4]], 'nan', 'AAE=', None)
        >>> as_json(np.datetime64("2026-01-31T12:00", "s")), as_json({"pair": (1, b"")})
        ('2026-01-31T12:00:00', {'pair': [1, '']})
    """
    if isinstance(value, np.ndarray) and (value.dtype.kind in "biu" or _is_finite(value)):
        return value.tolist()
    if isinstance(value, (np.ndarray, list, tuple)):
        return [as_json(item) for item in value]
    if isinstance(value, dict):
        return {str(name): as_json(item) for name, item in value.items()}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return str(value)
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, float):
        return plain if math.isfinite(plain) else str(plain)
    return plain if isinstance(plain, (str, int)) or plain is None else str(plain)


def _is_finite(array: NDArray[Any]) -> bool:
    return array.dtype.kind == "f" and bool(np.isfinite(array).all())
