"""Look up entries of hashed permutations without sorting whole permutations.

`hashed_permutation` sorts the numbers from 0 to n - 1 by hash keys. Hashes are uniform, so the keys of the entries
[p, q) of the result are near the quantiles p/n and q/n of all 64-bit integers. Only the keys between these quantiles,
with a margin, are sorted; smaller keys are counted. If a requested entry is not among the sorted keys, the margin is
doubled, so the result is always exact.

Keys are selected before the last step of the hash function, because this step leaves the highest bits unchanged.
No I/O.
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
"""Maximum number of keys that are computed at once: 1 MB of memory.

Permutations are not divided, so a longer one exceeds this number."""

_REMEMBERED_PARTS = 8
"""Number of ranges of permutations (from `_parts`) whose hashes are cached.

The next lookup often needs the same permutations."""

_MARGIN = 1.25
"""Margin in entries of the permutation, divided by the square root of its length.

At least 2.5 standard deviations of the number of keys below a quantile."""

_HIGH = 1 << LAST_SHIFT
"""Number of values that the highest `LAST_SHIFT` bits of a key can have."""

_LOW = np.uint64(64 - LAST_SHIFT)
"""Number of the remaining, lower bits of a key."""

_LOW_BITS, _HIGHEST = np.uint64(2 ** (64 - LAST_SHIFT) - 1), np.uint64(2**64 - 1)


class PartialSort:
    """Lookup of entries in several hashed permutations, and the inverse lookup.

    Thread-safe; recent hashes are cached.

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
        """Look up entries of permutations by index.

        For each pair of w in `which` and p in `places`, return `hashed_permutation(states[w], lengths[w])[p]`.

        Args:
            states: Hash state of each permutation, from `mix`, shape (permutations,).
            lengths: Length of each permutation, from 1 to 2**33, shape (permutations,).
            which: Index of each entry's permutation, ascending; each permutation must occur. Shape (n,).
            places: Index of each entry in its permutation, shape (n,).

        Returns:
            Entries, a new array of shape (n,).
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
        """Return the index of each number in its permutation: the inverse of `numbers_at`.

        The result has shape (n,).

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
    """Yield ranges of permutations whose keys are computed together, in one matrix.

    A matrix has at most `_HASHED_AT_ONCE` keys. A permutation with more keys is a range of its own.
    """
    first, longest = 0, 0
    for number, length in enumerate(lengths.tolist()):
        longest = max(longest, length)
        if number > first and (number + 1 - first) * longest > _HASHED_AT_ONCE:
            yield slice(first, number)
            first, longest = number, length
    yield slice(first, len(lengths))


def _near(places: NDArray[np.float64], lengths: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the highest bits of the expected key at an index of each permutation.

    These are the highest `LAST_SHIFT` bits; shape (permutations,).
    """
    return np.clip(places / lengths * _HIGH, 0, _HIGH - 1).astype(np.uint64)


def _number_bits(lengths: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return a bit mask for each permutation; (permutations,).

    The mask selects the low bits of a sort key, which contain the number that is sorted.
    """
    return np.array([(1 << (length - 1).bit_length()) - 1 for length in lengths.tolist()], dtype=np.uint64)


class _Keys:
    """Sort keys of a few permutations, not sorted yet.

    The arguments are bytes, because `lru_cache` needs hashable arguments.

    Args:
        of_states: Bytes of the uint64 array of hash states, one per permutation.
        of_lengths: Bytes of the int64 array of lengths.
    """

    def __init__(self, of_states: bytes, of_lengths: bytes) -> None:
        states, lengths = np.frombuffer(of_states, np.uint64), np.frombuffer(of_lengths, np.int64)
        # hashes: shape (permutations, longest length); hashes without their last step. Shorter permutations are padded.
        longest = int(lengths.max())
        hashes = counting(longest).view(np.uint64) ^ states[:, None]
        self._hashes = mixed_but_last_shift(hashes, np.empty_like(hashes))
        self._padding = [np.s_[row, lengths[row] :] for row in np.flatnonzero(lengths < longest).tolist()]

    def select(self, lows: NDArray[np.uint64], highs: NDArray[np.uint64], bits: NDArray[np.uint64]) -> _Selected:
        """Return the keys in given ranges, one range for each permutation, sorted.

        Args:
            lows: Lower bound of the highest `LAST_SHIFT` bits of the keys, inclusive, shape (permutations,).
            highs: Upper bound of these bits, inclusive, shape (permutations,).
            bits: Mask of the number in each key, from `_number_bits`, shape (permutations,).
        """
        is_below = self._hashes < (lows << _LOW)[:, None]
        is_within = self._hashes <= (highs << _LOW | _LOW_BITS)[:, None]
        is_within ^= is_below
        for padding in self._padding:
            is_below[padding] = is_within[padding] = False
        # One call for each row, because NumPy's count along an axis is several times slower.
        before = np.array([np.count_nonzero(row) for row in is_below])
        index = is_within.reshape(-1).nonzero()[0]
        # begins: shape (permutations,), index of each permutation's first key in the flattened matrix
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
    """Sorted keys of several permutations: those keys that are in a range of values."""

    keys: NDArray[np.uint64]  # sorted keys of each permutation, padded: (permutations, most)
    before: NDArray[np.int64]  # number of keys below the range: (permutations,)
    counts: NDArray[np.int64]  # number of keys in the range: (permutations,)
    bits: NDArray[np.uint64]  # bit mask of the number in a key: (permutations,)

    def has(self, firsts: NDArray[np.int64], lasts: NDArray[np.int64]) -> bool:
        """Return whether the keys of all requested entries are present.

        For each permutation, these are the entries from `firsts` to `lasts`, inclusive.
        """
        return bool(((self.before <= firsts) & (lasts < self.before + self.counts)).all())

    def numbers_at(self, which: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Look up entries of the permutations, as a new array of shape (n,).

        Args:
            which: Permutation of each entry, shape (n,).
            places: Index of each entry in its permutation, shape (n,).
        """
        return (self.keys[which, places - self.before[which]] & self.bits[which]).view(np.int64)

    def places_of(self, keys: NDArray[np.uint64], begins: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the index of each key in its permutation, shape (n,).

        Args:
            keys: Keys, sorted by permutation, shape (n,).
            begins: Index of each permutation's first key in `keys`, shape (permutations,).
        """
        borders = itertools.pairwise([*begins.tolist(), len(keys)])
        rows = zip(self.keys, borders, self.before.tolist(), strict=True)
        return np.concatenate([row.searchsorted(keys[first:stop]) + before for row, (first, stop), before in rows])
