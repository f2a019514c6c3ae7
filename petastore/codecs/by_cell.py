"""DataframeColumnCodec: base class of custom codecs written for Petastorm.

Such codecs encode and decode one cell at a time.
"""

from __future__ import annotations

import abc
import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.codecs.registry import register
from petastore.codecs.scalar import arrow_type_of, simple_type_name
from petastore.errors import DecodeError, EncodeError, SchemaError
from petastore.schema.field import JsonValue, UnischemaField

__all__ = ["DataframeColumnCodec"]


class DataframeColumnCodec(abc.ABC):
    """Base class for your own codec of single cells.

    Define `encode`, `decode` and `spark_dtype`. A subclass is registered under its module and name when it is defined,
    so import it before you open datasets that use it. Its instance attributes are its configuration, stored in the
    schema: they must be JSON values, and the constructor must accept them by name (without leading underscores).
    Otherwise define `config`. Cells are encoded one by one in Python; `petastore.schema.field.Codec` is the faster
    interface for whole columns.

    Example:
        >>> class RunLengthCodec(DataframeColumnCodec):
        ...     def encode(self, unischema_field, value):
        ...         return bytes(np.flatnonzero(np.diff(value, prepend=0)).astype("uint8"))
        ...     def decode(self, unischema_field, value):
        ...         steps = np.zeros(unischema_field.shape, bool)
        ...         steps[np.frombuffer(value, "uint8")] = True
        ...         return (np.cumsum(steps) % 2).astype(unischema_field.numpy_dtype)
        ...     def spark_dtype(self):
        ...         return "binary"
        >>> field = UnischemaField("mask", np.uint8, (8,), RunLengthCodec())
        >>> field.codec.decode(field, field.codec.encode(field, np.array([0, 1, 1, 1, 0, 0, 1, 1])))
        array([0, 1, 1, 1, 0, 0, 1, 1], dtype=uint8)
    """

    codec_id: ClassVar[str] = ""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "codec_id" not in vars(cls):
            cls.codec_id = f"{cls.__module__}.{cls.__qualname__}"
        register(cls)

    @abc.abstractmethod
    def encode(self, unischema_field: UnischemaField, value: Any) -> Any:
        """Encode one value, never None, as one Spark cell of type `spark_dtype()`."""

    @abc.abstractmethod
    def decode(self, unischema_field: UnischemaField, value: Any) -> Any:
        """Decode one cell, never None, to a value with the field's dtype and shape."""

    @abc.abstractmethod
    def spark_dtype(self) -> Any:
        """Return the Spark type of the column, as an object, class or name (`"binary"`)."""

    def config(self) -> Mapping[str, JsonValue]:
        """Return the instance attributes as a dict, by name without leading underscores."""
        return {name.lstrip("_"): value for name, value in vars(self).items()}

    def check_field(self, field: UnischemaField) -> None:
        """Check that the codec can be rebuilt from its configuration.

        Every field is accepted.

        Raises:
            SchemaError: The codec cannot be rebuilt, or `spark_dtype()` is not a scalar type.
        """
        self.storage_type(field)
        try:
            again = type(self)(**json.loads(json.dumps(self.config())))
        except (TypeError, ValueError) as problem:
            raise SchemaError(
                f"field {field.name!r}: {type(self).__name__} cannot be rebuilt from its configuration: {problem}. "
                "Define config() to return the arguments of its constructor as JSON"
            ) from None
        if again != self:
            raise SchemaError(
                f"field {field.name!r}: {type(self).__name__}(**config()) must equal the codec, got a different codec "
                f"from {dict(self.config())!r}. Define config() to return the arguments of the constructor"
            )

    def storage_type(self, field: UnischemaField) -> pa.DataType:  # noqa: ARG002 - the same for all fields
        """Return the Arrow type of `spark_dtype()`."""
        return arrow_type_of(simple_type_name(self.spark_dtype()))

    def encode_column(self, values: Sequence[Any] | NDArray[Any], field: UnischemaField) -> pa.Array:
        """Encode each value with `encode`; None becomes null.

        Raises:
            EncodeError: `encode` raised, or its result does not fit the storage type.
        """
        cells = []
        for row, value in enumerate(values):
            try:
                cell = None if value is None else self.encode(field, value)
                cells.append(bytes(cell) if isinstance(cell, (bytearray, memoryview)) else cell)
            except EncodeError as problem:
                raise problem.at(row=row) from problem.__cause__
            except Exception as problem:
                raise EncodeError(
                    f"{type(self).__name__}.encode raised {problem!r}. Correct the codec or the value", row=row
                ) from problem
        try:
            return pa.array(cells, self.storage_type(field))
        except (pa.ArrowException, TypeError, ValueError) as problem:
            raise EncodeError(
                f"{type(self).__name__}.encode must return values of Arrow type {self.storage_type(field)}: {problem}"
            ) from None

    def decode_column(self, cells: pa.Array, field: UnischemaField, out: NDArray[Any]) -> None:
        """Decode each cell with `decode`, into `out`.

        Raises:
            DecodeError: `decode` raised, or the shape of its result does not match the field.
        """
        for row, cell in enumerate(cells.to_pylist()):
            try:
                value = self.decode(field, cell)
            except DecodeError as problem:
                raise problem.at(row=row) from problem.__cause__
            except Exception as problem:
                raise DecodeError(
                    f"{type(self).__name__}.decode raised {problem!r}. Correct the codec, or skip bad rows with "
                    "on_error='skip'",
                    row=row,
                ) from problem
            if not field.fits(np.shape(value)):
                raise DecodeError(
                    f"{type(self).__name__}.decode must return shape {field.shape}, as the field declares, got "
                    f"{np.shape(value)}",
                    row=row,
                )
            out[row] = value

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), repr(sorted(vars(self).items()))))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.config().items())})"
