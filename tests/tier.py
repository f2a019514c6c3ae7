"""Test tiers: `make test` leaves out tests marked `slow` and shrinks loops; `make test-all` runs everything."""

from __future__ import annotations

import os

__all__ = ["IS_FULL", "examples", "sized"]

IS_FULL = os.environ.get("PETASTORE_TESTS") == "all"
"""Whether this run is `make test-all`. Child processes see the same value, because it comes from the environment."""


def sized(*, full: int, quick: int) -> int:
    """Return the size of a loop: `full` in `make test-all`, `quick` in `make test`.

    Example:
        >>> sized(full=1000, quick=50) in (50, 1000)
        True
    """
    return full if IS_FULL else quick


def examples(full: int) -> int:
    """Return `max_examples` for a Hypothesis test: `full` in `make test-all`, an eighth (at least 5) in `make test`.

    Example:
        >>> examples(80) in (10, 80)
        True
    """
    return sized(full=full, quick=min(full, max(5, full // 8)))
