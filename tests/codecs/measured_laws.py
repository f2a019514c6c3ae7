"""Base class of tests of codecs that report decoded sizes: decoding takes little more memory than reported."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from petastore.codecs.registry import codec_of
from petastore.schema.field import MeasuringCodec, UnischemaField
from petastore.testing.codec_laws import CodecLaws, empty_column
from tests.memory import grown_in_child

__all__ = ["MeasuredCodecLaws"]

_FEW = settings(
    deadline=None,
    max_examples=max(3, settings().max_examples * 3 // 20),
    suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow],
)

_MOST_DECODED_BYTES = 48 * 1024 * 1024
"""Cells that declare a larger size are not decoded here, because readers reject them."""

_OTHER_BYTES = 24 * 1024 * 1024
"""Memory that decoding may take in addition to values: loaded libraries, and free memory of allocators."""

_LIES = [
    struct.pack(form, number) for form in ("<I", ">I", "<Q", ">Q", "<H", ">H") for number in (2**15, 2**16 - 1)
] + [struct.pack(form, number) for form in ("<I", ">I", "<Q", ">Q") for number in (2**20, 2**26, 2**31 - 1, 2**32 - 1)]
"""Large numbers, encoded like sizes in file headers."""


class MeasuredCodecLaws(CodecLaws):
    """The codec laws, and one more for codecs that are a `petastore.schema.field.MeasuringCodec`."""

    def bombs(self, field: UnischemaField) -> st.SearchStrategy[Any] | None:  # noqa: ARG002 - subclasses use it
        """Return a strategy for small cells that decode to, or declare, huge values in the codec's format.

        With None, the test uses cells in which some bytes were replaced by large numbers. Only codecs that report
        decoded sizes (`petastore.schema.field.MeasuringCodec`) are tested.
        """
        return None

    @_FEW
    @given(data=st.data())
    def test_decoding_takes_little_more_memory_than_the_measured_size(self, data: st.DataObject) -> None:
        """Computing sizes takes no memory for values; decoding takes at most three times the reported size."""
        case = self._drawn_case(data, lambda field: isinstance(codec_of(field), MeasuringCodec))
        if case is None:
            return
        codec, field = codec_of(case.field), case.field
        assert isinstance(codec, MeasuringCodec)
        honest, bombs = codec.encode(field, data.draw(case.values)), self.bombs(field)
        codec.decode(field, honest)  # the first call loads libraries, whose memory must not count
        cell = data.draw(_lying(honest) if bombs is None else bombs | _lying(honest))
        column = pa.array([cell], codec.storage_type(field))
        (said, measuring, refused), grown = grown_in_child(functools.partial(_measured, codec, cell, column, field))
        stored = _OTHER_BYTES + 4 * column.nbytes
        assert measuring <= stored, f"measuring took {measuring:,} bytes"
        assert set(refused) <= {"", "DecodeError"}, refused
        assert not refused or grown <= 3 * said + stored, f"the cell says {said:,} bytes, and it took {grown:,}"


@st.composite
def _lying(draw: st.DrawFn, cell: Any) -> Any:
    """Replace bytes of a cell by large numbers, mostly near its beginning or end, where formats have sizes."""
    if not isinstance(cell, bytes) or not cell:
        return cell
    lying = bytearray(cell)
    for _ in range(draw(st.integers(1, 3))):
        lie = draw(st.sampled_from(_LIES))
        at = draw(st.integers(-min(len(cell), 64), min(len(cell), 96) - 1)) % len(cell)
        lying[at : at + len(lie)] = lie
    return bytes(lying)


def _measured(
    codec: MeasuringCodec, cell: Any, column: Any, field: UnischemaField, growth: Callable[[], int]
) -> tuple[int | None, int, list[str]]:
    """Return the reported size, the memory that reporting took, and the errors of decoding as a cell and a column."""
    sizes = codec.decoded_sizes(column, field)
    said, measuring = field.decoded_bytes if sizes is None else int(sizes[0]), growth()
    if said is None or said > _MOST_DECODED_BYTES:
        return said, measuring, []
    faces = (lambda: codec.decode(field, cell), lambda: codec.decode_column(column, field, empty_column(field, 1)))
    return said, measuring, [_refused(face) for face in faces]


def _refused(decode: Callable[[], object]) -> str:
    try:
        decode()
    except Exception as problem:  # noqa: BLE001 - the type is checked below
        return type(problem).__name__
    return ""
