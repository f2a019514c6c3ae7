"""Fixtures shared by the tests of obstore stores and the tests of range requests."""

from __future__ import annotations

from tests.storage.ranges.conftest import _threads_that_obstore_keeps, fetcher

__all__ = ["_threads_that_obstore_keeps", "fetcher"]
