"""What the tests of obstore's stores share with those of ranges, which are fetched from these."""

from __future__ import annotations

from tests.storage.ranges.conftest import _threads_that_obstore_keeps, fetcher

__all__ = ["_threads_that_obstore_keeps", "fetcher"]
