"""Arrays in dtypes that JAX has now: without `jax_enable_x64`, those of 64 bits have 32.

JAX itself would cut integers to 32 bits without a word: 2**40 + 5 becomes 5.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from petastore.errors import DecodeError, InvalidArgumentError

__all__ = ["narrowed", "refuse_dtypes"]

_WHAT_TO_DO = (
    "write jax.config.update('jax_enable_x64', True) before the first array, leave the column out with schema_fields, "
    "or convert it in a transform_spec"
)


def refuse_dtypes(reader: Any) -> None:
    """Refuses times where JAX has no 64 bits: nanoseconds since 1970 fit into no fewer.

    Raises:
        InvalidArgumentError: A column has times.
    """
    if jax.dtypes.canonicalize_dtype(np.int64) == np.dtype(np.int64):
        return
    for field in reader.schema:
        if field.dtype.kind in "mM":
            raise InvalidArgumentError(
                f"column {field.name!r} is {field.dtype_name}, which is nanoseconds in 64 bits, and JAX has 32 unless "
                f"it is told otherwise; {_WHAT_TO_DO}"
            )


def narrowed(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """The values in the dtype that JAX gives them; the same array where that is its own.

    Integers are the same numbers, and floating point is rounded, as JAX does.

    Raises:
        DecodeError: A number does not fit.

    Example:
        >>> narrowed("id", np.array([7])).dtype, narrowed("id", np.array([2**40 + 5]))
        Traceback (most recent call last):
        petastore.errors.DecodeError: column 'id': 1,099,511,627,781 does not fit into int32, and JAX has no int64
            unless it is told to; write jax.config.update('jax_enable_x64', True) before the first array, leave the
            column out with schema_fields, or convert it in a transform_spec
    """
    dtype = np.dtype(jax.dtypes.canonicalize_dtype(values.dtype))
    if dtype == values.dtype:
        return values
    if values.dtype.kind in "iu":
        limits = np.iinfo(dtype)
        outside = (values < limits.min) | (values > limits.max)
        if outside.any():
            raise _does_not_fit(name, f"{int(values[outside][0]):,}", values.dtype, dtype)
        return values.astype(dtype)
    with np.errstate(over="ignore"):
        made = values.astype(dtype)
    too_large = np.isinf(made) & ~np.isinf(values)
    if too_large.any():
        raise _does_not_fit(name, str(values[too_large][0]), values.dtype, dtype)
    return made


def _does_not_fit(name: str, value: str, found: np.dtype[Any], dtype: np.dtype[Any]) -> DecodeError:
    return DecodeError(
        f"{value} does not fit into {dtype}, and JAX has no {found} unless it is told to; {_WHAT_TO_DO}", column=name
    )
