"""Find the fastest of several settings in limited time. No I/O.

Measurements are short and interleaved (successive halving). Each round measures all remaining settings one after the
other, so that a busy moment of the machine slows all of them. A setting is compared with the reference of the same
round. After a few rounds, the slower half is left out.
"""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from petastore.monitoring.diagnosis import NOT_THE_INPUT, Diagnosis
from petastore.readers.options import LOCAL_DISK_CACHE, NULL_CACHE

if TYPE_CHECKING:
    from petastore.readers.options import PassedKwargs

__all__ = [
    "Standing",
    "Tried",
    "Tuned",
    "code_of",
    "described",
    "fastest",
    "planned_trials",
    "race",
    "settings_to_try",
    "tuned_by",
]

_WORKERS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)

_TIE: Final = 0.03
"""Difference of rates that is too small to matter: the setting that comes first wins."""

_FINALISTS: Final = 2
"""Number of settings, besides the reference, that are measured until the end."""

_REPEATS: Final = (5, 4, 3, 2, 1)
"""Rounds before the slower half is left out: the first number for which the time is sufficient."""

_LEAST_S: Final = 1.0
"""Minimum seconds per measurement in the plan; if there is less time, there are fewer rounds instead."""

_SLACK: Final = 2.0
"""The number of rounds is reduced if the remaining measurements would need more than this many times the remaining
time."""

_MOST_ROUNDS: Final = 0.75
"""Share of the rounds in which a setting must be faster than the reference to win."""

S = TypeVar("S")


def settings_to_try(given: PassedKwargs, probe: Diagnosis) -> list[PassedKwargs]:
    """Return the settings to compare, as arguments of `make_reader`.

    The first setting has no arguments. With each pool and cache, settings with fewer workers come first. Settings
    change the speed of the reader, but not the rows.

    Args:
        given: The user's arguments of `make_reader`.
        probe: Diagnosis of a reader with these arguments. If it waits for remote storage, the settings include a disk
            cache, and up to 16 workers or 4 per CPU (whichever is more). Otherwise they have up to 8 workers or 2 per
            CPU.

    Example:
        >>> from petastore.monitoring.diagnosis import Counters, diagnose
        >>> probe = diagnose(Counters(workers=2, cpus=2))
        >>> [setting.get("workers_count") for setting in settings_to_try({}, probe)]
        [None, 1, 3, 4, 6, 8]
    """
    counters = probe.counters
    waits = counters.is_remote and probe.shares.get("storage", 0.0) >= NOT_THE_INPUT
    is_cacheable = waits and given.get("cache_type", NULL_CACHE) in (None, NULL_CACHE)
    most = max(16, 4 * counters.cpus) if waits else max(8, 2 * counters.cpus)
    counts: list[PassedKwargs] = [{"workers_count": count} for count in _WORKERS if count <= most]
    pools: list[PassedKwargs] = [{}] if given.get("reader_pool_type") == "dummy" else counts
    if given.get("transform_spec") is not None:
        processes: list[PassedKwargs] = [{"reader_pool_type": "process", **count} for count in counts]
        pools = [*pools, *processes]
    pools = [{} if pool == {"workers_count": counters.workers} else pool for pool in pools]
    caches: list[PassedKwargs] = [{}, {"cache_type": LOCAL_DISK_CACHE}] if is_cacheable else [{}]
    settings: list[PassedKwargs] = [{**pool, **cache} for cache in caches for pool in pools]
    return [{}, *(setting for setting in settings if setting)]


def described(setting: PassedKwargs) -> str:
    """Return the arguments of a setting as code, for display.

    Example:
        >>> described({"workers_count": 2, "cache_type": "local-disk"}), described({})
        ('workers_count=2, cache_type="local-disk"', 'your arguments')
    """
    return ", ".join(f"{name}={_literal(name, value)}" for name, value in setting.items()) or "your arguments"


@dataclasses.dataclass(slots=True)
class Standing(Generic[S]):
    """Measured rates of one setting."""

    setting: S

    rates: list[float] = dataclasses.field(default_factory=list)
    """Rows per second of each measurement."""

    ratios: list[float] = dataclasses.field(default_factory=list)
    """Each rate divided by that of the reference in the same round."""

    is_finalist: bool = True
    """Whether the setting has never been left out as too slow."""

    @property
    def ratio(self) -> float:
        """Median ratio to the reference; 0 if nothing was measured."""
        return statistics.median(self.ratios) if self.ratios else 0.0

    @property
    def is_mostly_faster(self) -> bool:
        """Whether the setting was faster than the reference in most rounds."""
        return sum(ratio > 1 for ratio in self.ratios) >= _MOST_ROUNDS * len(self.ratios)


def race(
    settings: Sequence[S],
    measure: Callable[[S, float], float],
    *,
    seconds: float,
    clock: Callable[[], float],
) -> list[Standing[S]]:
    """Measure settings in rounds; after some rounds, leave out the slower half.

    Args:
        settings: Settings to compare; the first one is the reference, which is measured in each round.
        measure: Function that measures a setting for a number of seconds, or longer, and returns rows per second.
        seconds: Time for all measurements. No measurement begins later, except the first one of the reference.
        clock: Function that returns seconds.

    Returns:
        The measurements of each setting, in the order of `settings`.

    Example:
        >>> now, rates = [0.0], {"defaults": 100.0, "1 worker": 130.0, "4 workers": 90.0}
        >>> def measure(setting, seconds):
        ...     now[0] += seconds
        ...     return rates[setting]
        >>> found = race(list(rates), measure, seconds=60, clock=lambda: now[0])
        >>> fastest(found).setting, fastest(found).ratio
        ('1 worker', 1.3)
    """
    standings = [Standing(setting) for setting in settings]
    reference, others = standings[0], standings[1:]
    ends, spent = clock() + seconds, 0.0
    repeats, done_rounds, trials = _repeats(len(settings), seconds), 0, 0
    while True:
        left = _trials_left(len(others), repeats, done_rounds)
        for number, standing in enumerate([reference, *(others if done_rounds % 2 else others[::-1])]):
            began = clock()
            if began >= ends and reference.rates:
                return standings
            standing.rates.append(measure(standing.setting, max(ends - began, 0.0) / (left - number)))
            standing.ratios.append(standing.rates[-1] / reference.rates[-1])
            spent, trials = spent + clock() - began, trials + 1
        done_rounds += 1
        while repeats > 1 and _trials_left(len(others), repeats, done_rounds) * spent / trials > _SLACK * (
            ends - clock()
        ):
            repeats -= 1
        if done_rounds >= repeats:
            if len(others) <= _FINALISTS:
                return standings
            done_rounds, by_ratio = 0, sorted(others, key=lambda standing: -standing.ratio)
            for standing in by_ratio[max(_FINALISTS, math.ceil(len(others) / 2)) :]:
                standing.is_finalist = False
            others = [standing for standing in others if standing.is_finalist]


def planned_trials(settings: int, seconds: float) -> int:
    """Return the number of measurements that a race of this many settings takes.

    Example:
        >>> planned_trials(5, 60), planned_trials(5, 10)
        (40, 8)
    """
    return _trials_left(settings - 1, _repeats(settings, seconds), 0)


def _repeats(settings: int, seconds: float) -> int:
    return next((n for n in _REPEATS if _trials_left(settings - 1, n, 0) * _LEAST_S <= seconds), 1)


def _trials_left(others: int, repeats: int, done_rounds: int) -> int:
    """Return the number of measurements that are left until the end of the race.

    Args:
        others: Number of remaining settings, without the reference.
        repeats: Rounds before settings are left out.
        done_rounds: Rounds that were done since settings were left out.
    """
    left = max(repeats - done_rounds, 0) * (others + 1)
    while others > _FINALISTS:
        others = max(_FINALISTS, math.ceil(others / 2))
        left += repeats * (others + 1)
    return left


def fastest(standings: Sequence[Standing[S]]) -> Standing[S]:
    """Return the fastest setting that was measured to the end.

    If several settings are within 3 % of it, return the first one.

    A setting must be faster than the reference in most rounds, so that noise does not replace the user's arguments.
    """
    finalists = [standing for standing in standings if standing.is_finalist and standing.ratios]
    finalists = [one for one in finalists if one is standings[0] or one.is_mostly_faster]
    best = max(standing.ratio for standing in finalists)
    return next(standing for standing in finalists if standing.ratio >= best * (1 - _TIE))


@dataclasses.dataclass(frozen=True, slots=True)
class Tried:
    """A setting and its measured rates."""

    arguments: PassedKwargs
    """Arguments of `make_reader` that replace the user's; empty for the user's own setting."""

    rates: tuple[float, ...]
    """Rows per second of each measurement, in chronological order; empty if there was no time."""

    ratio: float
    """Median ratio to the user's own arguments, each measured in the same round; 0 without measurements."""

    @property
    def median(self) -> float:
        """Median of the rates."""
        return statistics.median(self.rates) if self.rates else 0.0

    def __str__(self) -> str:
        return described(self.arguments)


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Tuned:
    """Result of `tune`: print it, or pass `best` to `make_reader`."""

    url: str | None
    """URL of the dataset, without credentials; None for a list of URLs."""

    tried: tuple[Tried, ...]
    """All settings; the first one is the user's own."""

    winner: Tried
    """The fastest setting; if several are within 3 % of it, the first of them in `tried`."""

    best: PassedKwargs
    """Keyword arguments of `make_reader` with the fastest setting, including the user's own."""

    default_workers: int
    """Number of workers with the user's own arguments."""

    @property
    def advice(self) -> str:
        """Advice in one sentence, with its reason."""
        change, ratio = self.winner.arguments, f"{self.winner.ratio:.2f} times your rate"
        if not change:
            return f"Keep your arguments: no other setting was clearly faster, by more than {_TIE * 100:.0f} %."
        reasons = []
        workers = change.get("workers_count") or self.default_workers
        if workers < self.default_workers:
            reasons.append("fewer threads are faster here")
        elif workers > self.default_workers:
            reasons.append("more workers are faster here")
        if change.get("reader_pool_type") == "process":
            reasons.append("the transform runs faster in processes")
        if "cache_type" in change:
            reasons.append("the first epoch fills the cache and later ones read from it")
        return f"Set {self.winner}: {ratio}; {'; '.join(reasons)}."

    @property
    def code(self) -> str:
        """A call of `make_reader` with the fastest setting, to copy."""
        return code_of(self.url, self.best)

    def __str__(self) -> str:
        names = [str(one) for one in self.tried]
        width = max(map(len, ("setting", *names)))
        lines = [f"{'setting':<{width}}  {'rows/s':>11}  {'lowest':>11}  {'highest':>11}  {'ratio':>5}  times"]
        for name, one in zip(names, self.tried, strict=True):
            if one.rates:
                rates = "  ".join(f"{rate:11,.0f}" for rate in (one.median, min(one.rates), max(one.rates)))
                lines.append(f"{name:<{width}}  {rates}  {one.ratio:5.2f}  {len(one.rates):5}")
            else:
                lines.append(f"{name:<{width}}  not tried: raise seconds")
        return "\n".join([*lines, "", self.advice, "", self.code])

    __repr__ = __str__

    def as_json(self) -> dict[str, object]:
        """Return the result as a dict of JSON values; a rate is in rows per second."""
        tried = [
            {"arguments": one.arguments, "rows_per_second": one.rates, "median_rows_per_second": one.median}
            | {"ratio": one.ratio}
            for one in self.tried
        ]
        return {"best": self.winner.arguments, "advice": self.advice, "code": self.code, "tried": tried}


def tuned_by(
    url: str | None, given: PassedKwargs, standings: Sequence[Standing[PassedKwargs]], *, default_workers: int
) -> Tuned:
    """Return the result of `tune` from the measurements of a race.

    Args:
        url: URL of the dataset, without credentials; None for a list of URLs.
        given: The user's arguments of `make_reader`.
        standings: Result of `race`; the first setting is the user's own.
        default_workers: Number of workers with the user's own arguments.
    """
    tried = [Tried(one.setting, tuple(one.rates), one.ratio) for one in standings]
    won = fastest(standings)
    winner = tried[[one is won for one in standings].index(True)]
    best: PassedKwargs = {**given, **winner.arguments}
    return Tuned(url, tuple(tried), winner, best, default_workers)


def code_of(url: str | None, arguments: Mapping[str, object]) -> str:
    """Return a call of `make_reader` to copy.

    An argument that is not a literal, or that may contain secrets, is shown as `name=name`.

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
