"""Switch that reads partition keys that are dates or booleans as text, as Petastorm does."""

from __future__ import annotations

__all__ = ["is_on"]

is_on = False
"""Whether dates and booleans stay text. It is True while `import petastorm` gives petastore."""
