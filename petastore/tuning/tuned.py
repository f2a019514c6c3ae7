"""Result of tuning: rates of all settings, the best one, and code to copy. No I/O."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from petastore.tuning.race import TIE, Standing, fastest
from petastore.tuning.settings import Setting, code_of

if TYPE_CHECKING:
    from petastore.readers.options import PassedKwargs

__all__ = ["Tried", "Tuned", "tuned_by"]


@dataclasses.dataclass(frozen=True, slots=True)
class Tried:
    """A setting and its measured rates."""

    arguments: PassedKwargs
    """Arguments of `make_reader` that replace the user's; empty for the user's own."""

    rates: tuple[float, ...]
    """Rows per second of each measurement, in chronological order; empty if there was no time."""

    ratio: float
    """Median ratio to the user's own arguments, each measured in the same round; 0 without measurements."""

    @property
    def median(self) -> float:
        """Median of the rates."""
        return statistics.median(self.rates) if self.rates else 0.0

    def __str__(self) -> str:
        return str(Setting.of(**self.arguments))


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Tuned:
    """Result of `tune`: print it, or pass `best` to `make_reader`."""

    url: str | None
    """URL of the dataset, without credentials; None for a list of URLs."""

    tried: tuple[Tried, ...]
    """All settings; the first one is the user's own."""

    winner: Tried
    """The fastest setting; of several within 3 %, the user's own, or else the one with the fewest workers."""

    best: PassedKwargs
    """Keyword arguments of `make_reader` with the fastest setting, including the user's own."""

    default_workers: int
    """Workers of the user's own arguments."""

    @property
    def advice(self) -> str:
        """Advice in one sentence, with its reason."""
        change, ratio = self.winner.arguments, f"{self.winner.ratio:.2f} times your rate"
        if not change:
            return f"Keep your arguments: no other setting was clearly faster, by more than {TIE * 100:.0f} %."
        reasons = []
        workers = change.get("workers_count") or self.default_workers
        if change.get("reader_pool_type") == "dummy":
            reasons.append("threads cost more than they save, but nothing is prepared while training computes")
        elif workers < self.default_workers:
            reasons.append("fewer threads are faster here")
        elif workers > self.default_workers:
            reasons.append("more workers are faster here")
        if change.get("reader_pool_type") == "process":
            reasons.append("the transform runs faster in processes")
        if "cache_type" in change:
            reasons.append("the first epoch fills the cache and later ones read from it")
        if {"interleave", "shuffle_buffer_bytes"} & set(change):
            reasons.append("compare the mixing with plan.explain first")
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
    url: str | None, given: PassedKwargs, standings: Sequence[Standing[Setting]], *, default_workers: int
) -> Tuned:
    """Return the result of a race between settings."""
    tried = [Tried(one.setting.arguments, tuple(one.rates), one.ratio) for one in standings]
    won = fastest(standings)
    winner = tried[[one is won for one in standings].index(True)]
    best: PassedKwargs = {**given, **winner.arguments}
    return Tuned(url, tuple(tried), winner, best, default_workers)
