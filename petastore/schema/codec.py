"""The promise of a codec: one value ⇄ one stored cell, and a whole column of cells at once.

A `codec_id` is a promise to read, forever, what it once wrote: two classes may share an id only if each decodes what
the other wrote with the same configuration. The configuration is JSON and nothing else.

A codec has two faces. The *cell* face (`encode`, `decode`) takes one value; it is the definition. The *column* face
(`encode_column`, `decode_column`) takes a whole Arrow column; it is what readers and writers call, and it must equal
the cell face value by value (`petastore.testing.codec_laws` checks that).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from petastore.schema.field import UnischemaField

__all__ = ["BytesCodec", "Codec", "JsonValue", "MeasuringCodec", "ViewingCodec"]

JsonValue: TypeAlias = str | int | float | bool | list[Any] | dict[str, Any] | None


@runtime_checkable
class Codec(Protocol):
    """What a field's values look like in storage, and how they get there and back.

    Codecs are frozen values: equal configuration means equal codecs and equal hashes. All methods are thread-safe and
    let go of the GIL wherever the library underneath can.
    """

    codec_id: ClassVar[str]
    """Name in the schema document, for instance `"ndarray"`. Never reused for other bytes."""

    def config(self) -> Mapping[str, JsonValue]:
        """The configuration, as JSON, from which an equal codec can be built."""
        ...

    def check_field(self, field: UnischemaField) -> None:
        """Refuse a field that this codec cannot store.

        Raises:
            SchemaError: Naming the field, what it declares and what the codec can do.
        """
        ...

    def storage_type(self, field: UnischemaField) -> Any:
        """The `pyarrow.DataType` of the stored column, as Spark would write it too."""
        ...

    def encode(self, field: UnischemaField, value: Any) -> Any:
        """One value to one stored cell.

        Args:
            field: What was declared. `value` is never None; nulls are the writer's business.
            value: A NumPy array or scalar, or the Python object of the same meaning.

        Returns:
            `bytes`, `str`, `int`, `float`, `bool`, `Decimal`, `datetime` or a list of these: what Arrow and Spark take
            for a cell of `storage_type(field)`.

        Raises:
            EncodeError: Wrong dtype, shape or range; the message says what came and what was declared.
        """
        ...

    def decode(self, field: UnischemaField, cell: Any) -> Any:
        """One stored cell (as `encode` returned it) to one value: a NumPy array or scalar that owns its memory.

        Raises:
            DecodeError: The cell is damaged, or is not what the field declares.
        """
        ...

    def encode_column(self, values: Sequence[Any] | NDArray[Any], field: UnischemaField) -> Any:
        """Many values to one `pyarrow.Array` of `storage_type(field)`; None becomes null.

        Raises:
            EncodeError: As `encode`, with `row` set to the position in `values`.
        """
        ...

    def decode_column(self, cells: Any, field: UnischemaField, out: NDArray[np.generic]) -> None:
        """A whole column into one preallocated array.

        Args:
            cells: A `pyarrow.Array` (not chunked; its offset may be > 0) without nulls.
            field: What was declared.
            out: Array of `len(cells)` values, owned by the caller and written in place. Of dtype `field.dtype` and
                shape `(rows, *field.shape)` where the shape is fixed (`field.is_fixed`); else of dtype object and
                shape `(rows,)`, to be filled with one array each. Its rows are C-contiguous.

        Raises:
            DecodeError: As `decode`, with `row` set to the position in `cells`.
        """
        ...


@runtime_checkable
class ViewingCodec(Codec, Protocol):
    """A codec some of whose columns need no decoding: their bytes are the values, looked at in another way.

    A third face, which readers use where a codec has it: what it gives must equal what `decode_column` gives.
    """

    def view_column(self, cells: Any, field: UnischemaField) -> NDArray[Any] | None:
        """The values of a column as an array over Arrow's memory, without a copy.

        Args:
            cells: A `pyarrow.Array` (not chunked; its offset may be > 0), possibly with nulls.
            field: What was declared; of fixed shape, and not of dtype object.

        Returns:
            Shape `(rows, *field.shape)`, read-only, of `field.dtype` in any byte order, with any strides; values under
            nulls are arbitrary. None wherever that is not all there is to do, and `decode_column` has to: for nulls
            that leave no room for a value, for cells that differ in form, and for whatever has to be refused.
        """
        ...


@runtime_checkable
class BytesCodec(Codec, Protocol):
    """A codec whose cells are files of bytes, each decoded for itself.

    A third face, which readers use where a codec has it: cells are decoded where they lie, however far apart. What it
    gives must equal what `decode_column` gives.
    """

    def decode_bytes(self, cells: Sequence[NDArray[np.uint8]], field: UnischemaField, out: NDArray[Any]) -> None:
        """Cells into one preallocated array.

        Args:
            cells: The bytes of each cell, read-only arrays of uint8.
            field: What was declared.
            out: As in `decode_column`.

        Raises:
            DecodeError: As `decode`, with `row` set to the position in `cells`.
        """
        ...


@runtime_checkable
class MeasuringCodec(Codec, Protocol):
    """A codec that tells how large values become before it makes them: a cell of some bytes may hold many gigabytes.

    A further face, which readers use to keep to `max_cell_bytes` and `memory_budget`. What a codec tells binds it: a
    cell that holds more than it says of itself is refused, and not decoded as far as it goes.
    """

    def decoded_sizes(self, cells: Any, field: UnischemaField) -> NDArray[np.int64] | None:
        """Bytes of each value once it is decoded, by what the cells say of themselves; takes no memory for values.

        Where more than the value has to be decoded, such as the whole of an image of which a part is wanted, that is
        counted. Decoding a cell may take up to twice as much besides, while it lasts.

        Args:
            cells: A `pyarrow.Array` (not chunked; its offset may be > 0) without nulls.
            field: What was declared.

        Returns:
            Shape `(rows,)`. Anything for cells that have to be refused, if that takes no memory. None where each cell
            takes what the field declares, and no more. Nothing is raised for the sake of a cell.
        """
        ...
