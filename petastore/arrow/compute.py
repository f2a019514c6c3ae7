"""`pyarrow.compute`, imported when something of it is asked for: it takes 35 ms of a first batch of numbers in vain.

Whatever has no function here has one there. What methods of arrays such as `is_null` call is imported by then, too.

Example:
    >>> from petastore.arrow import compute as pc
    >>> pc.binary_length(pc.cast([7], "string")).to_pylist()
    [1]
"""

from __future__ import annotations

from typing import Any

__all__: list[str] = []


def __getattr__(name: str) -> Any:
    import pyarrow.compute

    found = getattr(pyarrow.compute, name)
    globals()[name] = found
    return found
