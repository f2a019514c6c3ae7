"""Worker pools that run a reader's tasks."""

from __future__ import annotations

from petastore.work.futures import Pool, Task
from petastore.work.pools import InlinePool, ThreadPool

__all__ = ["InlinePool", "Pool", "Task", "ThreadPool"]
