"""Deprecated parameters of Petastorm, such as `shard_seed`.

They are accepted and checked, so that existing calls keep working, but have no effect. Most parameters give one warning
per process, which names the replacement of the parameter.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from petastore.callers import frames_inside_petastore
from petastore.errors import RetiredWarning
from petastore.plan.request import known_word, whole_number

__all__ = ["HdfsDriver", "Retired", "tell_retired", "warned_of"]

HdfsDriver: TypeAlias = Literal["libhdfs", "libhdfs3"]
"""HDFS drivers."""


def _told(instead: str, *asks_for_nothing: str) -> Mapping[str, Any]:
    """Return the dataclass metadata of a deprecated parameter that gives a warning.

    Args:
        instead: Reason why the parameter has no effect, and its replacement; text of the warning.
        asks_for_nothing: Values, besides the default and None, for which no warning is issued.
    """
    return {"instead": instead, "asks_for_nothing": (None, *asks_for_nothing)}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Retired:
    """Deprecated parameters of Petastorm: accepted and checked, without effect.

    `cache_row_size_estimate` and `cache_extra_settings` give no warning, because they only affected speed.

    Args: Deprecated
        pyarrow_serialize: Retired: nothing is serialized between workers and reader.
        results_queue_size: Retired: use `memory_budget`, the limit of prefetching in bytes.
        shuffle_row_drop_partitions: Retired: use `shuffle_rows`, which mixes rows of many row groups.
        shard_seed: Retired: use `seed`.
        cache_row_size_estimate: No effect, because the cache counts bytes.
        cache_extra_settings: No effect.
        hdfs_driver: Retired: pyarrow always uses `"libhdfs"`.
        zmq_copy_buffers: Retired: batches are sent in shared memory.
        convert_early_to_numpy: Retired: workers always make NumPy arrays.
    """

    pyarrow_serialize: bool = dataclasses.field(
        default=False, metadata=_told("nothing is serialized between workers and reader. Remove this argument")
    )
    results_queue_size: int | None = dataclasses.field(
        default=None,
        metadata=_told("prefetching is automatic. Use memory_budget= to limit memory"),
    )
    shuffle_row_drop_partitions: int = dataclasses.field(
        default=1,
        metadata=_told("use shuffle_rows=True, which mixes rows of many row groups within shuffle_buffer_bytes="),
    )
    shard_seed: int | None = dataclasses.field(
        default=None,
        metadata=_told("use seed=, which sets the order; rows are always divided evenly"),
    )
    cache_row_size_estimate: int | None = None
    cache_extra_settings: Mapping[str, Any] | None = None
    hdfs_driver: HdfsDriver | None = dataclasses.field(
        default=None, metadata=_told("pyarrow always uses libhdfs. Remove this argument", "libhdfs")
    )
    zmq_copy_buffers: bool = dataclasses.field(
        default=True, metadata=_told("batches are sent in shared memory. Remove this argument")
    )
    convert_early_to_numpy: bool = dataclasses.field(
        default=False, metadata=_told("workers always make NumPy arrays. Remove this argument")
    )

    def __post_init__(self) -> None:
        known_word(self.hdfs_driver, HdfsDriver, name="hdfs_driver", or_none=True)
        for name in ("results_queue_size", "shuffle_row_drop_partitions"):
            value = getattr(self, name)
            if value is not None:
                whole_number(value, name=name, least=1)


warned_of: set[str] = set()
"""Names of the parameters of which this process has warned."""


def tell_retired(given: Retired) -> None:
    """Warn about parameters without effect, once each in a process.

    Warns:
        RetiredWarning: A parameter was passed; the warning shows the line outside petastore.

    Example:
        >>> tell_retired(Retired(pyarrow_serialize=False, shuffle_row_drop_partitions=1))
        >>> Retired(hdfs_driver="webhdfs")
        Traceback (most recent call last):
        petastore.errors.InvalidArgumentError: hdfs_driver must be one of None, 'libhdfs', 'libhdfs3', got 'webhdfs'
    """
    for parameter in dataclasses.fields(given):
        name, value = parameter.name, getattr(given, parameter.name)
        known = parameter.metadata
        if not known or name in warned_of or value in (parameter.default, *known["asks_for_nothing"]):
            continue
        message = f"{name}={value!r} has no effect: {known['instead']}"
        warnings.warn(message, RetiredWarning, stacklevel=frames_inside_petastore() + 1)
        warned_of.add(name)  # after the warning, so that the next call raises again if warnings are errors
