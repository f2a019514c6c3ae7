"""Random generators for transforms, one per row, seeded by seed, epoch, row group and row number.

`petastore.readers.assembly.assemble` computes a key of two 64-bit words for each row from seed, epoch, row group and
row number. The generator of a row is NumPy's Philox, a counter-based generator, with this key. NumPy guarantees the
bits of Philox across releases; the methods of `numpy.random.Generator`, which convert bits to numbers, may change
(NEP 19).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

__all__ = ["RowGenerators", "generator_of"]


def generator_of(key: NDArray[np.uint64]) -> np.random.Generator:
    """Return a new random generator that depends only on a key.

    Args:
        key: Key of a row, shape (2,).

    Example:
        >>> key = np.array([7, 0], np.uint64)
        >>> [int(generator_of(key).bit_generator.random_raw()) for _ in range(2)]
        [16086915834549238692, 16086915834549238692]
    """
    return np.random.Generator(np.random.Philox(key=key))


class RowGenerators(Sequence[np.random.Generator]):
    """Sequence of random generators, one per row: the `rng` argument of transforms of DataFrames or columns.

    The generator of a row is created on first use and cached, so that later draws continue its sequence.

    Args:
        keys: Key of each row, shape (rows, 2).

    Example:
        >>> rng = RowGenerators(np.array([[7, 0], [7, 1], [7, 2]], np.uint64))
        >>> angles = np.array([of_row.uniform(-10, 10) for of_row in rng])
        >>> angles.shape, len(rng), rng[0] is rng[-3]
        ((3,), 3, True)
    """

    __slots__ = ("_keys", "_made")

    def __init__(self, keys: NDArray[np.uint64]) -> None:
        self._keys = keys
        self._made: dict[int, np.random.Generator] = {}

    def __len__(self) -> int:
        return len(self._keys)

    @overload
    def __getitem__(self, row: int) -> np.random.Generator: ...

    @overload
    def __getitem__(self, row: slice) -> list[np.random.Generator]: ...

    def __getitem__(self, row: int | slice) -> np.random.Generator | list[np.random.Generator]:
        if isinstance(row, slice):
            return [self[place] for place in range(*row.indices(len(self)))]
        place = range(len(self))[row]
        if place not in self._made:
            self._made[place] = generator_of(self._keys[place])
        return self._made[place]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self):,} rows)"
