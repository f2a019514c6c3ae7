"""Local disk cache: a key-value store of bytes, shared by all processes of a host, with a hard size limit."""

from petastore.cache.disk_cache import Announcement, DiskCache
from petastore.cache.entries import CacheMetrics
from petastore.cache.entry_file import Key
from petastore.cache.ledger import CacheContents
from petastore.cache.next_use import simulate

__all__ = ["Announcement", "CacheContents", "CacheMetrics", "DiskCache", "Key", "simulate"]
