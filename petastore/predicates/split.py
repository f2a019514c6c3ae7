"""A split by hash: the same rows fall into the same part wherever and whenever they are read, in any order.

The value is written as Python's `str` writes it, hashed by MD5 as UTF-8, and the digest modulo `2**63 - 1` is its
place. A part owns the places from its lower to its upper share of `2**63 - 2`, the upper one excluded. This is
Petastorm's split on a 64-bit machine, bit for bit: a dataset that was split by it stays split alike. A missing value is
written `None`; in a column of floats it is written `nan`, because that is what Petastorm's reader makes of it.
"""

from __future__ import annotations

import hashlib
import json
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.errors import InvalidArgumentError
from petastore.predicates.column import of_distinct
from petastore.predicates.predicate import PredicateBase, field_name
from petastore.schema.values import each_value

__all__ = ["in_pseudorandom_split"]

_PLACES = 2**63 - 1
_ROUNDING = 1e-6


class in_pseudorandom_split(PredicateBase):  # noqa: N801 - Petastorm's name
    """Includes one part of a split by the hash of a field.

    Fractions are met on average over many values: small parts of small datasets may be empty. Rows with equal values
    fall into the same part; those without a value all fall into one.

    Args:
        fraction_list: The share of each part, at least 0; together at most 1. What is left belongs to no part.
        subset_index: Which part, from 0.
        predicate_field: Name of the field, which has scalars.

    Raises:
        InvalidArgumentError: There is no such part, or the fractions cannot be.

    Example:
        >>> train, val = (in_pseudorandom_split([0.8, 0.2], part, "id") for part in (0, 1))
        >>> [train.do_include({"id": n}) for n in range(5)], val.do_include({"id": 3})
        ([True, True, False, True, True], False)
    """

    def __init__(self, fraction_list: Sequence[float], subset_index: int, predicate_field: str) -> None:
        self._field = field_name(predicate_field, name="in_pseudorandom_split")
        fractions = _checked(fraction_list)
        if isinstance(subset_index, bool) or not isinstance(subset_index, numbers.Integral):
            raise InvalidArgumentError(f"subset_index={subset_index!r}, but parts are numbered from 0")
        if not 0 <= subset_index < len(fractions):
            raise InvalidArgumentError(
                f"subset_index={subset_index}, but fraction_list has {len(fractions)} parts, numbered from 0"
            )
        # Summed from the left each time, as Petastorm does: other orders round otherwise.
        self._low: float = (sum(fractions[:subset_index]) if subset_index else 0) * (_PLACES - 1)
        self._high: float = sum(fractions[: subset_index + 1]) * (_PLACES - 1)

    def get_fields(self) -> set[str]:
        """The one field."""
        return {self._field}

    def do_include(self, values: Mapping[str, Any]) -> bool:
        """Whether the value of the row falls into the part."""
        return self._includes(str(values[self._field]))

    def do_include_batch(self, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """Where the value falls into the part, shape (rows,); each distinct value is hashed once."""
        column = columns[self._field]
        if column.dtype.kind in "biufmM" and column.ndim == 1 and not isinstance(column, np.ma.MaskedArray):
            return of_distinct(column, lambda value: self._includes(str(value)))
        missing = "nan" if column.dtype.kind == "f" else "None"
        texts = [missing if value is None else str(value) for value in each_value(column)]
        answers = {text: self._includes(text) for text in dict.fromkeys(texts)}
        return np.fromiter((answers[text] for text in texts), np.bool_, count=len(texts))

    def cache_key(self) -> str | None:
        """The borders of the part, and the field."""
        return json.dumps(["in_pseudorandom_split", self._field, repr(self._low), repr(self._high)])

    def _includes(self, text: str) -> bool:
        place = int(hashlib.md5(text.encode(), usedforsecurity=False).hexdigest(), 16) % _PLACES
        return bool(self._low <= place < self._high)


def _checked(fractions: Any) -> list[Any]:
    found: list[Any] = (
        list(fractions) if isinstance(fractions, (Sequence, np.ndarray)) and not isinstance(fractions, str) else []
    )
    is_number = [isinstance(part, numbers.Real) and not isinstance(part, bool) and float(part) >= 0 for part in found]
    if not found or not all(is_number) or not sum(found) <= 1 + _ROUNDING:
        raise InvalidArgumentError(
            f"fraction_list={fractions!r:.200}, but it is a list of shares of at least 0 that are at most 1 together"
        )
    return found
