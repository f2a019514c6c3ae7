"""Local disk cache: a key-value store of bytes with a hard size limit.

All processes of a host share the cache.
"""

from petastore.cache.disk_cache import Announcement, DiskCache
from petastore.cache.entries import CacheMetrics
from petastore.cache.entry_file import Key
from petastore.cache.ledger import CacheContents
from petastore.cache.next_use import simulate

__all__ = ["Announcement", "CacheContents", "CacheMetrics", "DiskCache", "Key", "simulate"]
