"""How many requests a second a storage has time for, as it was found by being refused. Pure.

A storage counts requests, not how many are under way: with an answer in a millisecond, even one at a time may be too
many. So requests get times at which they begin. After a refusal there are fewer a second, and slowly more again.
"""

from __future__ import annotations

import dataclasses
import math
import struct

__all__ = ["LIMIT_LASTS_S", "Pace"]

LIMIT_LASTS_S = 60.0
"""A pace is forgotten when nobody was refused for so long."""

_ONCE_IN_S = 0.5
"""Refusals of one moment count as one: their requests were under way before anybody knew."""

_KEPT = 0.7
"""Of the requests a second after a refusal."""

_FIRST_GROWTH_PER_S, _GROWTH_PER_S, _LATER_GROWTH_PER_S = 2.0, 1.1, 1.5
_LATER_S = 5.0
"""When the old number of requests was passed, and nobody was refused: there is time for more."""

_HELD_BACK_S = 0.2
_LEAST_PER_S, _MOST_PER_S = 1.0, 1e6
_AHEAD_S = 0.5
"""For so long times are given beforehand: whoever has one does not learn of refusals."""

_PACKED = struct.Struct("<8s8d")
_MAGIC = b"petapac1"


@dataclasses.dataclass(frozen=True, slots=True)
class Pace:
    """What all who ask one storage from one host know. Times are by a clock that they share.

    Example:
        >>> pace = Pace.after_refusal(100.0, made_per_s=100.0)
        >>> pace, wait = pace.next_turn(100.0)
        >>> round(pace.per_s), round(wait, 3), round(pace.next_turn(100.0)[1], 3)
        (70, 0.2, 0.214)
    """

    per_s: float
    """Requests a second."""

    next_at: float
    """When the next one may begin."""

    grown_at: float
    """When `per_s` was worked out."""

    refused_at: float
    """When somebody was refused last, and that counted."""

    began_at: float
    """When it was made. Whoever is refused soon after adds what it has asked for itself: nobody knows the sum."""

    counted_from: float
    """Since when answers are counted."""

    answers: float = 0.0
    """How many there were since."""

    answered_per_s: float = math.inf
    """How many there were in the time before: while others are refused, that is what the storage has time for."""

    @classmethod
    def after_refusal(cls, now: float, made_per_s: float) -> Pace:
        """The first one is refused.

        Args:
            now: When.
            made_per_s: Requests a second that whoever is refused has made.
        """
        return cls(_within(made_per_s * _KEPT), now + _HELD_BACK_S, now, now, now, now)

    def refused(self, now: float, made_per_s: float, *, is_new: bool) -> Pace:
        """Another one is refused.

        Args:
            now: When.
            made_per_s: Requests a second that whoever is refused has made.
            is_new: Whether it was not known to this pace yet.
        """
        if now - self.began_at < _ONCE_IN_S:
            return dataclasses.replace(self, per_s=_within(self.per_s + made_per_s * _KEPT)) if is_new else self
        if now - self.refused_at < _ONCE_IN_S:
            return self
        return dataclasses.replace(
            self,
            per_s=_within(min(self._grown(now), self.answered_per_s) * _KEPT),
            next_at=max(self.next_at, now + _HELD_BACK_S),
            grown_at=now,
            refused_at=now,
        )

    def answered(self, now: float, answers: int) -> Pace:
        """So many more were answered."""
        counted, counted_s = self.answers + answers, now - self.counted_from
        if counted_s < _ONCE_IN_S:
            return dataclasses.replace(self, answers=counted)
        return dataclasses.replace(self, answers=0.0, counted_from=now, answered_per_s=counted / counted_s)

    def next_turn(self, now: float) -> tuple[Pace | None, float]:
        """When the next request may begin.

        Returns:
            The pace after it, and seconds until then; or None, and seconds until it is worth to ask again.
        """
        at, per_s = max(self.next_at, now), self._grown(now)
        if at - now > _AHEAD_S:
            return None, _AHEAD_S
        return dataclasses.replace(self, per_s=per_s, grown_at=now, next_at=at + 1 / per_s), at - now

    def is_over(self, now: float) -> bool:
        """Whether nobody was refused for long."""
        return now - self.refused_at > LIMIT_LASTS_S

    def _grown(self, now: float) -> float:
        """Requests a second by now."""
        if self.refused_at == self.began_at:  # the first guess was too low: what the others ask for was not in it
            return _within(self.per_s * _FIRST_GROWTH_PER_S ** min(max(now - self.grown_at, 0.0), LIMIT_LASTS_S))
        return _within(self.per_s * _growth(now - self.refused_at) / _growth(self.grown_at - self.refused_at))

    def packed(self) -> bytes:
        """As bytes, for others."""
        return _PACKED.pack(_MAGIC, *dataclasses.astuple(self))

    @classmethod
    def unpacked(cls, data: bytes, now: float) -> Pace | None:
        """What others have packed; None where that is none, is over, or cannot be: it would hold back for long.

        Example:
            >>> pace = Pace.after_refusal(100.0, made_per_s=10.0)
            >>> Pace.unpacked(pace.packed(), 101.0) == pace, Pace.unpacked(pace.packed(), 200.0)
            (True, None)
        """
        if len(data) != _PACKED.size:
            return None
        magic, *numbers = _PACKED.unpack(data)
        pace = cls(*numbers)
        soon = now + 1.0
        can_be = (
            magic == _MAGIC
            and all(map(math.isfinite, numbers[:-1]))
            and _LEAST_PER_S <= pace.per_s <= _MOST_PER_S
            and pace.next_at <= now + _AHEAD_S + _HELD_BACK_S + 1 / pace.per_s
            and max(pace.grown_at, pace.refused_at, pace.began_at, pace.counted_from) <= soon
            and pace.answers >= 0
            and pace.answered_per_s >= 0
        )
        return pace if can_be and not pace.is_over(now) else None


def _growth(seconds: float) -> float:
    """By how much there are more, so many seconds after a refusal."""
    seconds = min(max(seconds, 0.0), LIMIT_LASTS_S)
    slow = min(seconds, _LATER_S)
    return float(_GROWTH_PER_S**slow * _LATER_GROWTH_PER_S ** (seconds - slow))


def _within(per_s: float) -> float:
    return min(max(per_s, _LEAST_PER_S), _MOST_PER_S)
