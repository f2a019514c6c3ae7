"""Hash function (64 bits) from which every shuffled order is computed. No I/O.

The finalizer is that of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA
2014): two xor-shift-multiply rounds over wrap-around unsigned 64-bit arithmetic. petastore implements this hash because
the numbers of `numpy.random.Generator` may change between releases (NEP 19), but an order must not change.

The words to hash, such as seed and epoch, are combined one after the other instead of added. The hashes of (seed 5,
epoch 1) and (seed 6, epoch 0) are therefore unrelated.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

__all__ = ["LAST_SHIFT", "counting", "hashed_permutation", "mix", "mix_array", "mixed_but_last_shift"]

_LONGEST_REMEMBERED = 2**18
"""Maximum length of the arrays that `counting` caches."""

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB

LAST_SHIFT = 31
"""Shift of the last step of the finalizer.

This step leaves the 31 highest bits of a hash unchanged."""


def mix(*words: int) -> int:
    """Return one 64-bit hash of integers of any size and sign.

    Example:
        >>> mix(0) != mix(0, 0) != mix(0, 1)
        True
        >>> hex(mix(5, 1)), hex(mix(6, 0))
        ('0xe17b6d147da182da', '0xb5d8c8503fa207b1')
    """
    state = 0
    for word in words:
        for limb in _limbs(word):
            state = _finalise((state ^ limb) + _GAMMA & _MASK)
    return state


def _limbs(word: int) -> list[int]:
    """Split an integer into 64-bit words, least significant word first.

    Negative integers are in two's complement.
    """
    limbs = [word & _MASK]
    word >>= 64
    while word not in (0, -1):
        limbs.append(word & _MASK)
        word >>= 64
    return limbs


def _finalise(z: int) -> int:
    z = (z ^ (z >> 30)) * _FIRST & _MASK
    z = (z ^ (z >> 27)) * _SECOND & _MASK
    return z ^ (z >> 31)


def mix_array(state: int | NDArray[np.uint64], words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the hash `mix(…, word)` for each word of an array.

    Args:
        state: Result of `mix` for the integers before the word; or one result for each word, shape (n,).
        words: Last integer of each hash, shape (n,).

    Returns:
        Hashes, a new array of shape (n,).
    """
    z = words ^ np.uint64(state)
    return _mixed(z, np.empty_like(z))


def _mixed(z: NDArray[np.uint64], shifted: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash words in place and return them; see `mixed_but_last_shift`."""
    mixed_but_last_shift(z, shifted)
    z ^= np.right_shift(z, np.uint64(LAST_SHIFT), out=shifted)
    return z


def mixed_but_last_shift(z: NDArray[np.uint64], shifted: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash words in place, without the last step of the hash, and return them.

    The last step, `z ^= z >> LAST_SHIFT`, changes only the low bits.

    Args:
        z: Words, each combined by exclusive or with its state (the hash of the words before it).
        shifted: Scratch array of the same shape, because allocating memory costs more than the arithmetic.
    """
    z += np.uint64(_GAMMA)
    z ^= np.right_shift(z, np.uint64(30), out=shifted)
    z *= np.uint64(_FIRST)
    z ^= np.right_shift(z, np.uint64(27), out=shifted)
    z *= np.uint64(_SECOND)
    return z


def hashed_permutation(state: int, length: int, scratch: NDArray[np.uint64] | None = None) -> NDArray[np.int64]:
    """Return the permutation of [0, length) that sorts the numbers by their hashes.

    Equal arguments give equal arrays on every platform and release. The low bits of each hash are replaced with the
    number itself. All sort keys therefore differ, and the result does not depend on NumPy's sorting algorithm.

    Args:
        state: Result of `mix` for all words on which the permutation depends.
        length: Count of numbers to permute, ≥ 0.
        scratch: Scratch memory, shape (2, at least length), C-contiguous; the result is a view of it.

    Returns:
        Shape (length,).

    Example:
        >>> hashed_permutation(mix(7), 6).tolist()
        [1, 2, 3, 5, 4, 0]
    """
    numbers = counting(length).view(np.uint64)
    low_bits = np.uint64((1 << max(length - 1, 0).bit_length()) - 1)
    keys, shifted = (np.empty((2, length), np.uint64) if scratch is None else scratch)[:, :length]
    _mixed(np.bitwise_xor(numbers, np.uint64(state), out=keys), shifted)
    keys &= ~low_bits
    keys |= numbers
    keys.sort()
    keys &= low_bits
    return keys.view(np.int64)


def counting(count: int) -> NDArray[np.int64]:
    """Return the array 0, 1, 2, … of shape (count,), read-only.

    Short arrays are cached.

    Example:
        >>> counting(3).tolist()
        [0, 1, 2]
    """
    return _counting(count) if count <= _LONGEST_REMEMBERED else np.arange(count, dtype=np.int64)


@functools.lru_cache(maxsize=4)
def _counting(count: int) -> NDArray[np.int64]:
    numbers = np.arange(count, dtype=np.int64)
    numbers.flags.writeable = False
    return numbers
