"""Pytest plugin that excludes the objects of test collection from garbage collection (`gc.freeze`).

Modules and thousands of tests are a million objects, nearly all of which stay. Scanning them repeatedly takes more than
half of the CPU time of collection. Without freezing, each later `gc.collect()` takes 0.6 s of CPU time. A forked child
that collects garbage copies 230 MB of pages, in 0.9 s. With freezing, both take less than a tenth of that.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

__all__ = ["pytest_collection"]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[None]:
    """Collect tests with garbage collection disabled, and freeze all objects that exist afterwards."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()
