"""Lazy import of `pyarrow.compute`, which takes 35 ms.

Batches of numbers do not need it. Use `pyarrow.compute` only for functions that `petastore.arrow` does not have.
Methods of Arrow arrays, such as `is_null`, also import it.

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
