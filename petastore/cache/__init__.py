"""The local disk cache: bytes by key, shared by all processes of a host, under one hard limit."""

from petastore.cache.announcement import Announcement
from petastore.cache.disk_cache import DiskCache
from petastore.cache.entry_file import Key
from petastore.cache.metrics import CacheContents, CacheMetrics
from petastore.cache.uses.simulation import simulate

__all__ = ["Announcement", "CacheContents", "CacheMetrics", "DiskCache", "Key", "simulate"]
