"""The words that `reader_throughput` took in Petastorm, for calls that use them."""

from __future__ import annotations

import enum

__all__ = ["ReadMethod", "WorkerPoolType"]


class WorkerPoolType(enum.StrEnum):
    """Where rows are read; each is what `reader_pool_type` of `make_reader` takes.

    Example:
        >>> print(WorkerPoolType.NONE)
        dummy
    """

    THREAD = "thread"
    PROCESS = "process"
    NONE = "dummy"


class ReadMethod(enum.StrEnum):
    """Who reads: `reader_throughput` measures Python, and says so if it is asked for TensorFlow."""

    TF = "tf"
    PYTHON = "python"
