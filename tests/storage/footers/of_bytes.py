"""Footers of in-memory Parquet files."""

from __future__ import annotations

from typing import Any

from petastore.storage.footers.footer import Footer, FooterParser
from petastore.storage.footers.tails import Tail, footer_in

__all__ = ["footer_of_bytes"]


def footer_of_bytes(data: Any) -> Footer:
    """Return the footer of a Parquet file, given its bytes."""
    whole = bytes(memoryview(data))
    encoded = footer_in(whole, len(whole), "a.parquet")
    assert encoded is not None
    return FooterParser().parse("a.parquet", Tail(len(whole), encoded))
