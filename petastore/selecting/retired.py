"""Parameters of Petastorm's that mean nothing here: accepted, checked, and each told about once a process.

Old calls need no edits. What a parameter was for is done by something else, which the warning names.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from petastore import forks
from petastore.callers import frames_inside_petastore
from petastore.errors import RetiredWarning
from petastore.plan.request import known_word, whole_number

__all__ = [
    "HdfsDriver",
    "Retired",
    "forget_what_was_told",
    "tell_retired",
]

HdfsDriver: TypeAlias = Literal["libhdfs", "libhdfs3"]
"""What HDFS was reached by."""


def _told(instead: str, *asks_for_nothing: str) -> Mapping[str, Any]:
    """What is known of a parameter that a warning tells of, but for values that ask for nothing that is not so already.

    Args:
        instead: What to do instead.
        asks_for_nothing: Such values beside the default and None.
    """
    return {"instead": instead, "asks_for_nothing": (None, *asks_for_nothing)}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Retired:
    """What was given for the parameters that mean nothing any more: the one table of them.

    Two settings of Petastorm's disk cache are not told of: they only ever had an effect on how fast it was.
    """

    pyarrow_serialize: bool = dataclasses.field(
        default=False, metadata=_told("nothing is serialised between workers and reader; leave it out")
    )
    results_queue_size: int | None = dataclasses.field(
        default=None,
        metadata=_told("memory_budget= says in bytes how far ahead the reader may work; leave this out"),
    )
    shuffle_row_drop_partitions: int = dataclasses.field(
        default=1,
        metadata=_told(
            "shuffle_rows=True mixes over row groups, as well as shuffle_buffer_bytes= bytes allow; leave this out"
        ),
    )
    shard_seed: int | None = dataclasses.field(
        default=None,
        metadata=_told("seed= decides the order, and rows are shared out evenly whatever it is; leave this out"),
    )
    cache_row_size_estimate: int | None = None
    cache_extra_settings: Mapping[str, Any] | None = None
    hdfs_driver: HdfsDriver | None = dataclasses.field(
        default=None, metadata=_told("pyarrow has libhdfs alone, and takes it by itself; leave it out", "libhdfs")
    )
    zmq_copy_buffers: bool = dataclasses.field(
        default=True, metadata=_told("batches cross processes in shared memory, not by zmq; leave it out")
    )
    convert_early_to_numpy: bool = dataclasses.field(
        default=False, metadata=_told("workers always make NumPy arrays; leave it out")
    )

    def __post_init__(self) -> None:
        known_word(self.hdfs_driver, HdfsDriver, name="hdfs_driver", or_none=True)
        for name in ("results_queue_size", "shuffle_row_drop_partitions"):
            value = getattr(self, name)
            if value is not None:
                whole_number(value, name=name, least=1)


_lock = forks.Lock()
_told_of: set[str] = set()


def tell_retired(given: Retired) -> None:
    """Warns of retired parameters that ask for something, once each in a process.

    Warns:
        RetiredWarning: At the line outside petastore that gave the parameter.

    Example:
        >>> tell_retired(Retired(pyarrow_serialize=False, shuffle_row_drop_partitions=1))
        >>> Retired(hdfs_driver="webhdfs")
        Traceback (most recent call last):
        petastore.errors.InvalidArgumentError: hdfs_driver='webhdfs' is not known; it is one of None, 'libhdfs',
        'libhdfs3'
    """
    for parameter in dataclasses.fields(given):
        name, value = parameter.name, getattr(given, parameter.name)
        known = parameter.metadata
        if not known or value in (parameter.default, *known["asks_for_nothing"]):
            continue
        with _lock:
            if name in _told_of:
                continue
        message = f"{name}={value!r} has no effect: {known['instead']}"
        warnings.warn(message, RetiredWarning, stacklevel=frames_inside_petastore() + 1)
        with _lock:  # only now: a warning that is an error is told again
            _told_of.add(name)


def forget_what_was_told() -> None:
    """The next use of each retired parameter warns again; for tests."""
    with _lock:
        _told_of.clear()
