"""The local disk cache: bytes by key, shared by all processes of a host, under one hard limit."""

from petastore.cache.announcement import Announcement
from petastore.cache.disk_cache import CacheInfo, CacheMetrics, DiskCache
from petastore.cache.simulation import simulate

__all__ = ["Announcement", "CacheInfo", "CacheMetrics", "DiskCache", "simulate"]
