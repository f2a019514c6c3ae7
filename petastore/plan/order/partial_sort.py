"""Look up single entries of shuffled (hashed) permutations without sorting whole permutations. No I/O.

`hashed_permutation` sorts the numbers from 0 to n - 1 by hash keys. Hashes are uniform, so the keys of the entries
[p, q) of the result are near the quantiles p/n and q/n of all 64-bit integers. Only the keys between these quantiles,
with a margin, are sorted; smaller keys are counted. If a requested entry is not among the sorted keys, the margin is
doubled, so the result is always exact.

Keys are selected before the last step of the hash function, because this step leaves the highest bits unchanged.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from petastore.plan.order.mix import LAST_SHIFT, counting, mix_array, mixed_but_last_shift

__all__ = ["PartialSort"]

_HASHED_AT_ONCE = 2**17
"""Maximum number of keys that are computed at once, in whole permutations: 1 MB of memory."""

_REMEMBERED_PARTS = 8
"""Number of ranges from `_parts` with cached hashes, because the next lookup often needs the same permutations."""

_MARGIN = 1.25
"""Margin in entries, divided by the square root of the length.

At least 2.5 standard deviations of the number of keys below a quantile."""

_HIGH = 1 << LAST_SHIFT
"""Number of values that the highest `LAST_SHIFT` bits of a key can have."""

_LOW = np.uint64(64 - LAST_SHIFT)
"""Number of the other, lower bits of a key."""

_LOW_BITS, _HIGHEST = np.uint64(2 ** (64 - LAST_SHIFT) - 1), np.uint64(2**64 - 1)


class PartialSort:
    """Entries of several hashed permutations, and the inverse lookup. Thread-safe; recent hashes are cached.

    Example:
        >>> states, lengths = np.array([7, 8], np.uint64), np.array([6, 4])
        >>> PartialSort().numbers_at(states, lengths, np.array([0, 0, 1]), np.array([5, 2, 3])).tolist()
        [1, 0, 1]
        >>> PartialSort().places_of(states, lengths, np.array([0, 0, 1]), np.array([1, 0, 1])).tolist()
        [5, 2, 3]
    """

    def __init__(self) -> None:
        self._keys = functools.lru_cache(maxsize=_REMEMBERED_PARTS)(_Keys)

    def numbers_at(
        self,
        states: NDArray[np.uint64],
        lengths: NDArray[np.int64],
        which: NDArray[np.int64],
        places: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Return `hashed_permutation(states[w], lengths[w])[p]` for each w and p of `which` and `places`.

        Args:
            states: Hash state of each permutation, from `mix`, shape (permutations,).
            lengths: Length of each permutation, from 1 to 2**33, shape (permutations,).
            which: Index of each entry's permutation, ascending; each permutation must occur. Shape (n,).
            places: Index of each entry in its permutation, shape (n,).

        Returns:
            Shape (n,), a new array.
        """
        numbers = np.empty(len(places), dtype=np.int64)
        if len(places) == 0:
            return numbers
        bits, begins = _number_bits(lengths), which.searchsorted(np.arange(len(lengths)))
        firsts, lasts = np.minimum.reduceat(places, begins), np.maximum.reduceat(places, begins)
        margins = _MARGIN * np.sqrt(lengths) + 1
        lows, highs = _near(firsts - margins, lengths), _near(lasts + margins, lengths)
        for part in _parts(lengths):
            keys = self._keys(states[part].tobytes(), lengths[part].tobytes())
            selected, wider = keys.select(lows[part], highs[part], bits[part]), margins[part]
            while not selected.has(firsts[part], lasts[part]):
                wider = 2 * wider
                least = _near(firsts[part] - wider, lengths[part])
                selected = keys.select(least, _near(lasts[part] + wider, lengths[part]), bits[part])
            entries = slice(begins[part][0], begins[part.stop] if part.stop < len(begins) else None)
            numbers[entries] = selected.numbers_at(which[entries] - part.start, places[entries])
        return numbers

    def places_of(
        self,
        states: NDArray[np.uint64],
        lengths: NDArray[np.int64],
        which: NDArray[np.int64],
        numbers: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Return the index of each number in its hashed permutation, shape (n,): the inverse of `numbers_at`.

        Args:
            states: As in `numbers_at`.
            lengths: As in `numbers_at`.
            which: Index of each number's permutation, ascending; each permutation must occur. Shape (n,).
            numbers: Numbers, each below the length of its permutation, shape (n,).
        """
        places = np.empty(len(numbers), dtype=np.int64)
        if len(numbers) == 0:
            return places
        bits, begins = _number_bits(lengths), which.searchsorted(np.arange(len(lengths)))
        wanted = mix_array(states[which], numbers.view(np.uint64))
        wanted &= ~bits[which]
        wanted |= numbers.view(np.uint64)
        lows, highs = (least.reduceat(wanted, begins) >> _LOW for least in (np.minimum, np.maximum))
        for part in _parts(lengths):
            keys = self._keys(states[part].tobytes(), lengths[part].tobytes())
            entries = slice(begins[part][0], begins[part.stop] if part.stop < len(begins) else None)
            selected = keys.select(lows[part], highs[part], bits[part])
            places[entries] = selected.places_of(wanted[entries], begins[part] - entries.start)
        return places


def _parts(lengths: NDArray[np.int64]) -> Iterator[slice]:
    """Yield ranges of permutations whose keys are computed together, as matrices of at most `_HASHED_AT_ONCE` keys.

    A single longer permutation is a range of its own.
    """
    first, longest = 0, 0
    for number, length in enumerate(lengths.tolist()):
        longest = max(longest, length)
        if number > first and (number + 1 - first) * longest > _HASHED_AT_ONCE:
            yield slice(first, number)
            first, longest = number, length
    yield slice(first, len(lengths))


def _near(places: NDArray[np.float64], lengths: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the highest `LAST_SHIFT` bits of the key expected at an index of each permutation; (permutations,)."""
    return np.clip(places / lengths * _HIGH, 0, _HIGH - 1).astype(np.uint64)


def _number_bits(lengths: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return, for each permutation, a bit mask of the low bits of its keys that contain the number; (permutations,)."""
    return np.array([(1 << (length - 1).bit_length()) - 1 for length in lengths.tolist()], dtype=np.uint64)


class _Keys:
    """Sort keys of a few permutations. The arguments are bytes, because `lru_cache` needs hashable arguments.

    Args:
        of_states: Bytes of the uint64 array of hash states, one per permutation.
        of_lengths: Bytes of the int64 array of lengths.
    """

    def __init__(self, of_states: bytes, of_lengths: bytes) -> None:
        states, lengths = np.frombuffer(of_states, np.uint64), np.frombuffer(of_lengths, np.int64)
        # hashes: shape (permutations, longest length), without the last step of the hash; shorter rows are padded
        longest = int(lengths.max())
        hashes = counting(longest).view(np.uint64) ^ states[:, None]
        self._hashes = mixed_but_last_shift(hashes, np.empty_like(hashes))
        self._padding = [np.s_[row, lengths[row] :] for row in np.flatnonzero(lengths < longest).tolist()]

    def select(self, lows: NDArray[np.uint64], highs: NDArray[np.uint64], bits: NDArray[np.uint64]) -> _Selected:
        """Return the sorted keys of each permutation whose highest `LAST_SHIFT` bits are in [low, high]."""
        is_below = self._hashes < (lows << _LOW)[:, None]
        is_within = self._hashes <= (highs << _LOW | _LOW_BITS)[:, None]
        is_within ^= is_below
        for padding in self._padding:
            is_below[padding] = is_within[padding] = False
        # Counted row by row, because NumPy's count along an axis is several times slower.
        before = np.array([np.count_nonzero(row) for row in is_below])
        index = is_within.reshape(-1).nonzero()[0]
        # begins: shape (permutations,), index of the first key of each permutation
        begins = np.arange(0, is_within.size, is_within.shape[1])
        ends = index.searchsorted(begins + is_within.shape[1])
        counts = np.diff(ends, prepend=0)
        width = int(counts.max())
        keys = self._hashes.reshape(-1)[index]
        keys ^= keys >> np.uint64(LAST_SHIFT)
        keys &= ~bits.repeat(counts)
        keys |= (index - begins.repeat(counts)).view(np.uint64)
        sorted_keys = np.full((len(counts), width), _HIGHEST)
        targets = (np.arange(len(counts)) * width - (ends - counts)).repeat(counts) + np.arange(len(keys))
        sorted_keys.reshape(-1)[targets] = keys
        sorted_keys.sort(axis=1)
        return _Selected(sorted_keys, before, counts, bits)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class _Selected:
    """Sorted keys of several permutations, each from a range of key values."""

    keys: NDArray[np.uint64]  # sorted keys of each permutation, padded: (permutations, most)
    before: NDArray[np.int64]  # number of keys below the range: (permutations,)
    counts: NDArray[np.int64]  # number of keys in the range: (permutations,)
    bits: NDArray[np.uint64]  # bit mask of the number in a key: (permutations,)

    def has(self, firsts: NDArray[np.int64], lasts: NDArray[np.int64]) -> bool:
        """Return whether the keys contain the entries from first to last (inclusive) of every permutation."""
        return bool(((self.before <= firsts) & (lasts < self.before + self.counts)).all())

    def numbers_at(self, which: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number at an index of a permutation, for each pair of permutation and index; shape (n,)."""
        return (self.keys[which, places - self.before[which]] & self.bits[which]).view(np.int64)

    def places_of(self, keys: NDArray[np.uint64], begins: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the index of each key in its permutation, shape (n,); `begins` are the starts of the permutations."""
        borders = itertools.pairwise([*begins.tolist(), len(keys)])
        rows = zip(self.keys, borders, self.before.tolist(), strict=True)
        return np.concatenate([row.searchsorted(keys[first:stop]) + before for row, (first, stop), before in rows])
