"""DataframeColumnCodec: the base of codecs that users write for Petastorm, which say what one cell is and no more."""

from __future__ import annotations

import abc
import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.codecs.registry import register
from petastore.codecs.spark_types import arrow_type_of, simple_type_name
from petastore.errors import DecodeError, EncodeError, SchemaError
from petastore.schema.codec import JsonValue
from petastore.schema.field import UnischemaField

__all__ = ["DataframeColumnCodec"]


class DataframeColumnCodec(abc.ABC):
    """Derive from it for a codec of your own: what one cell is, and its Spark type. The rest follows.

    Subclasses are registered as they are defined, by module and name, so import them before you open datasets that have
    them. Attributes that an instance has are its configuration: the constructor takes them by name (without leading
    underscores), and they are JSON; else define `config`. Cells are encoded and decoded one by one, in Python:
    `petastore.schema.codec.Codec` says how to do better.

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
        """One value, never None, to what Spark has in one cell of `spark_dtype()`."""

    @abc.abstractmethod
    def decode(self, unischema_field: UnischemaField, value: Any) -> Any:
        """One cell, never None, to one value of the dtype and shape of the field."""

    @abc.abstractmethod
    def spark_dtype(self) -> Any:
        """The Spark type of the column, as an object, a class or a name: `BinaryType()`, `"binary"`."""

    def config(self) -> Mapping[str, JsonValue]:
        """The attributes of the instance, by name without leading underscores."""
        return {name.lstrip("_"): value for name, value in vars(self).items()}

    def check_field(self, field: UnischemaField) -> None:
        """Any field, if the codec can be made anew of its configuration.

        Raises:
            SchemaError: It cannot, or `spark_dtype()` is no scalar type.
        """
        self.storage_type(field)
        try:
            again = type(self)(**json.loads(json.dumps(self.config())))
        except (TypeError, ValueError) as problem:
            raise SchemaError(
                f"field {field.name!r}: {type(self).__name__} cannot be made of its configuration, {problem}; define "
                "config() to return the arguments of its constructor as JSON"
            ) from None
        if again != self:
            raise SchemaError(
                f"field {field.name!r}: {type(self).__name__} made of its configuration {dict(self.config())!r} is "
                "another one; define config() to return the arguments of its constructor"
            )

    def storage_type(self, field: UnischemaField) -> pa.DataType:  # noqa: ARG002 - the same for all fields
        """The Arrow type of `spark_dtype()`."""
        return arrow_type_of(simple_type_name(self.spark_dtype()))

    def encode_column(self, values: Sequence[Any] | NDArray[Any], field: UnischemaField) -> pa.Array:
        """Each value by `encode`; None becomes null.

        Raises:
            EncodeError: `encode` raised, or gave what is no cell of the storage type.
        """
        cells = []
        for row, value in enumerate(values):
            try:
                cell = None if value is None else self.encode(field, value)
                cells.append(bytes(cell) if isinstance(cell, (bytearray, memoryview)) else cell)
            except EncodeError as problem:
                raise problem.at(row=row) from problem.__cause__
            except Exception as problem:
                raise EncodeError(f"{type(self).__name__}.encode raised {problem!r}", row=row) from problem
        try:
            return pa.array(cells, self.storage_type(field))
        except (pa.ArrowException, TypeError, ValueError) as problem:
            raise EncodeError(
                f"{type(self).__name__}.encode gave what is no {self.storage_type(field)}: {problem}"
            ) from None

    def decode_column(self, cells: pa.Array, field: UnischemaField, out: NDArray[Any]) -> None:
        """Each cell by `decode`, into `out`.

        Raises:
            DecodeError: `decode` raised, or gave another shape than the field declares.
        """
        for row, cell in enumerate(cells.to_pylist()):
            try:
                value = self.decode(field, cell)
            except DecodeError as problem:
                raise problem.at(row=row) from problem.__cause__
            except Exception as problem:
                raise DecodeError(f"{type(self).__name__}.decode raised {problem!r}", row=row) from problem
            if not field.fits(np.shape(value)):
                raise DecodeError(
                    f"the codec gave the shape {np.shape(value)}, and the field declares {field.shape}", row=row
                )
            out[row] = value

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), repr(sorted(vars(self).items()))))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.config().items())})"
