"""Our own 64-bit mix, from which every order is made. Pure.

The finaliser is that of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA
2014): two xor-shift-multiply rounds over wrap-around unsigned 64-bit arithmetic. It is ours because the streams of
`numpy.random.Generator` may change between releases (NEP 19), and an order must not.

Words are absorbed one by one, so (seed 5, epoch 1) and (seed 6, epoch 0) have nothing in common.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

__all__ = ["counting", "hashed_permutation", "mix", "mix_array"]

_LONGEST_REMEMBERED = 2**18

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB


def mix(*words: int) -> int:
    """One 64-bit value from integers of any size and sign.

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
    # Two's complement, least significant limb first; an integer of 64 bits is its own single limb.
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


def mix_array(state: int, words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """`mix(…, word)` of each word, where `state` is `mix(…)` of the words before; equal to it value by value.

    Args:
        state: What `mix` gave for the words before.
        words: Shape (n,).

    Returns:
        Shape (n,), a new array.
    """
    z = words ^ np.uint64(state)
    return _mixed(z, np.empty_like(z))


def _mixed(z: NDArray[np.uint64], shifted: NDArray[np.uint64]) -> NDArray[np.uint64]:
    # In place, and with one array besides: fresh memory costs more than the arithmetic.
    z += np.uint64(_GAMMA)
    z ^= np.right_shift(z, np.uint64(30), out=shifted)
    z *= np.uint64(_FIRST)
    z ^= np.right_shift(z, np.uint64(27), out=shifted)
    z *= np.uint64(_SECOND)
    z ^= np.right_shift(z, np.uint64(31), out=shifted)
    return z


def hashed_permutation(state: int, length: int, scratch: NDArray[np.uint64] | None = None) -> NDArray[np.int64]:
    """A permutation of [0, length) in the order of the mixed numbers.

    Equal arguments give equal arrays on every platform and release. Each number is put into the low bits of its own
    hash, so that the sorted keys are all different and carry the answer: which sorting algorithm NumPy picks cannot
    matter.

    Args:
        state: What `mix` gave for everything that the permutation depends on.
        length: Numbers to permute, ≥ 0.
        scratch: Memory to work in, shape (2, at least length), C-contiguous: what is returned lies there.

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
    """0, 1, 2, … of shape (count,), read-only; short ones are remembered, as the same lengths are asked for again.

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
