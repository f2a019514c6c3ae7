"""Parameters of Petastorm's that mean nothing here: accepted, checked, and each told about once a process.

Old calls need no edits. What a parameter was for is done by something else, which the warning names.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from types import FrameType
from typing import Any, Final

from petastore import forks
from petastore.errors import RequestError, RetiredWarning
from petastore.plan.request import whole_number

__all__ = ["LOCAL_DISK_CACHE", "NULL_CACHE", "forget_what_was_told", "tell_retired"]

NULL_CACHE: Final = "null"
"""`cache_type` of a reader that keeps nothing."""

LOCAL_DISK_CACHE: Final = "local-disk"
"""`cache_type` of a reader that keeps what it read on a local disk."""

_UNTOUCHED: Final[Mapping[str, tuple[Any, ...]]] = {
    "pyarrow_serialize": (False, None),
    "results_queue_size": (None,),
    "shuffle_row_drop_partitions": (1, None),
    "shard_seed": (None,),
    "hdfs_driver": (None, "libhdfs"),
    "zmq_copy_buffers": (True, None),
    "convert_early_to_numpy": (False, None),
    "cache_type": (None, NULL_CACHE),
}
"""Values at which a parameter asks for nothing that is not so already."""

_INSTEAD: Final[Mapping[str, str]] = {
    "pyarrow_serialize": "nothing is serialised between workers and reader; leave it out",
    "results_queue_size": "memory_budget= says in bytes how far ahead the reader may work; leave this out",
    "shuffle_row_drop_partitions": "shuffle_rows=True mixes over row groups, as well as shuffle_memory= bytes allow; "
    "leave this out",
    "shard_seed": "seed= decides the order, and rows are shared out evenly whatever it is; leave this out",
    "hdfs_driver": "pyarrow has libhdfs alone, and takes it by itself; leave it out",
    "zmq_copy_buffers": "batches cross processes in shared memory, not by zmq; leave it out",
    "convert_early_to_numpy": "workers always make NumPy arrays; leave it out",
    "cache_type": 'nothing is cached on disk yet, so cache_type="local-disk" only reads on as if it were not given; '
    "its settings have no effect either",
}

_TOLD_WITH_CACHE_TYPE: Final = frozenset(
    {"cache_location", "cache_size_limit", "cache_row_size_estimate", "cache_extra_settings"}
)

_DRIVERS: Final = ("libhdfs", "libhdfs3")
_CACHE_TYPES: Final = (NULL_CACHE, LOCAL_DISK_CACHE)

_lock = forks.Lock()
_told: set[str] = set()


def tell_retired(given: Mapping[str, Any]) -> None:
    """Checks retired parameters, and warns of those that ask for something, once each in a process.

    Args:
        given: Name to value, of the parameters in the table of this module.

    Raises:
        RequestError: A value was never one, such as `cache_type="memory"`.

    Warns:
        RetiredWarning: At the line outside petastore that gave the parameter.

    Example:
        >>> tell_retired({"pyarrow_serialize": False, "shuffle_row_drop_partitions": 1})
        >>> tell_retired({"cache_type": "memory"})
        Traceback (most recent call last):
        petastore.errors.RequestError: cache_type='memory' is not known; it is one of None, 'null', 'local-disk'
    """
    for name, value in given.items():
        _check(name, value)
        if name in _TOLD_WITH_CACHE_TYPE or value in _UNTOUCHED[name]:
            continue
        with _lock:
            if name in _told:
                continue
        message = f"{name}={value!r} has no effect: {_INSTEAD[name]}"
        warnings.warn(message, RetiredWarning, stacklevel=frames_inside_petastore() + 1)
        with _lock:  # only now: a warning that is an error is told again
            _told.add(name)


def forget_what_was_told() -> None:
    """The next use of each retired parameter warns again; for tests."""
    with _lock:
        _told.clear()


def _check(name: str, value: Any) -> None:
    if name == "cache_type" and value is not None and value not in _CACHE_TYPES:
        raise RequestError(f"cache_type={value!r} is not known; it is one of None, 'null', 'local-disk'")
    if name == "hdfs_driver" and value is not None and value not in _DRIVERS:
        raise RequestError(f"hdfs_driver={value!r} is not known; it is one of None, 'libhdfs', 'libhdfs3'")
    if name in ("results_queue_size", "shuffle_row_drop_partitions") and value is not None:
        whole_number(value, name=name, least=1)


def frames_inside_petastore() -> int:
    """How many calls up the caller outside petastore is, seen from `tell_retired`."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - what `warnings` itself counts
    depth = 0
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "petastore":
        frame = frame.f_back
        depth += 1
    return depth
