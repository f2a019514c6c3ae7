"""Lengths of the time units of NumPy's timestamps."""

from __future__ import annotations

__all__ = ["ATTOSECONDS"]

ATTOSECONDS = {
    "W": 604_800 * 10**18,
    "D": 86_400 * 10**18,
    "h": 3_600 * 10**18,
    "m": 60 * 10**18,
    "s": 10**18,
    "ms": 10**15,
    "us": 10**12,
    "ns": 10**9,
    "ps": 10**6,
    "fs": 10**3,
    "as": 1,
}
"""Attoseconds of each fixed unit of `numpy.datetime64`."""
