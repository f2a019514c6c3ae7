"""Settings to try: arguments of `make_reader` that change its speed, but not the rows. No I/O."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Unpack, cast

from petastore.monitoring.diagnosis import NOT_THE_INPUT, Diagnosis
from petastore.readers.options import LOCAL_DISK_CACHE, NULL_CACHE

if TYPE_CHECKING:
    from petastore.readers.options import PassedKwargs

__all__ = ["Setting", "code_of", "settings_to_try"]

_WORKERS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)

_MIXING: Final[tuple[PassedKwargs, ...]] = ({"interleave": 8}, {"interleave": 32}, {"shuffle_buffer_bytes": "32MB"})


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """Arguments of `make_reader` that replace the user's.

    Example:
        >>> str(Setting.of(workers_count=2, cache_type="local-disk")), str(Setting.of())
        ('workers_count=2, cache_type="local-disk"', 'your arguments')
    """

    items: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, **arguments: Unpack[PassedKwargs]) -> Setting:
        """Return a setting of keyword arguments."""
        return cls(tuple(arguments.items()))

    @property
    def arguments(self) -> PassedKwargs:
        """The keyword arguments, as a new dict."""
        return cast("PassedKwargs", dict(self.items))

    def __str__(self) -> str:
        return ", ".join(f"{name}={_literal(name, value)}" for name, value in self.items) or "your arguments"


def settings_to_try(
    given: PassedKwargs, probe: Diagnosis, *, dummy: bool = False, mixing: bool = False
) -> list[Setting]:
    """Return the settings to compare, the user's own first, then those with fewer workers first.

    Args:
        given: The user's arguments of `make_reader`.
        probe: Diagnosis of a reader with these arguments. If the reader waits for remote storage, the settings include
            a disk cache and up to 16 workers or 4 per CPU (whichever is more); otherwise up to 8 workers or 2 per CPU.
        dummy: Whether to try the pool `"dummy"`, which prepares nothing while training computes.
        mixing: Whether to try settings that shuffle less or more thoroughly.

    Example:
        >>> from petastore.monitoring.diagnosis import Counters, diagnose
        >>> probe = diagnose(Counters(workers=2, cpus=2))
        >>> [setting.arguments.get("workers_count") for setting in settings_to_try({}, probe)]
        [None, 1, 3, 4, 6, 8]
    """
    counters, waits = probe.counters, probe.shares.get("storage", 0.0) >= NOT_THE_INPUT
    is_cacheable = counters.is_remote and waits and given.get("cache_type", NULL_CACHE) in (None, NULL_CACHE)
    most = max(16, 4 * counters.cpus) if counters.is_remote and waits else max(8, 2 * counters.cpus)
    pools: list[dict[str, Any]] = [{}, {"reader_pool_type": "dummy"}] if dummy else [{}]
    if given.get("transform_spec") is not None:
        pools.append({"reader_pool_type": "process"})
    found: list[dict[str, Any]] = []
    for pool in pools:
        kind = pool.get("reader_pool_type", given.get("reader_pool_type", "thread"))
        counts: list[dict[str, Any]] = (
            [{"workers_count": count} for count in _WORKERS if count <= most] if kind != "dummy" else [{}]
        )
        for count in counts:
            is_given = pool | count == {"workers_count": counters.workers}
            found.append({} if is_given else pool | count)
    caches: list[dict[str, Any]] = [{}, {"cache_type": LOCAL_DISK_CACHE}] if is_cacheable else [{}]
    settings = [Setting.of(**one, **cache) for cache in caches for one in found]
    if mixing:
        settings += [Setting.of(**one) for one in _MIXING]
    return list(dict.fromkeys([Setting(), *settings]))


def code_of(url: str | None, arguments: Mapping[str, object]) -> str:
    """Return a call of `make_reader` to copy.

    An argument that is not a literal, or that may contain secrets, is named by its parameter.

    Example:
        >>> print(code_of("s3://bucket/train", {"shuffle_rows": True, "transform_spec": print}))
        make_reader(
            "s3://bucket/train",
            shuffle_rows=True,
            transform_spec=transform_spec,
        )
    """
    lines = [
        "dataset_url" if url is None else _literal("", url),
        *(f"{name}={_literal(name, value)}" for name, value in arguments.items()),
    ]
    return "make_reader(\n" + "".join(f"    {line},\n" for line in lines) + ")"


def _literal(name: str, value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return repr(value) if _is_literal(value) and name != "storage_options" else name


def _is_literal(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_literal, (*value, *value.values())))
    if isinstance(value, Sequence) and type(value) in (list, tuple):
        return all(map(_is_literal, value))
    return value is None or type(value) in (bool, int, float, str)
