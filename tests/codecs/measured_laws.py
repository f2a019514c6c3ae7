"""Tests for codecs that measure: a cell never takes more memory than it declares, whatever its bytes are."""

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
"""Cells that say that they become larger are not decoded: readers refuse them."""

_OTHER_BYTES = 24 * 1024 * 1024
"""What decoding may take for anything but values: libraries that are loaded, and memory that allocators keep."""

_LIES = [
    struct.pack(form, number) for form in ("<I", ">I", "<Q", ">Q", "<H", ">H") for number in (2**15, 2**16 - 1)
] + [struct.pack(form, number) for form in ("<I", ">I", "<Q", ">Q") for number in (2**20, 2**26, 2**31 - 1, 2**32 - 1)]
"""Large numbers as headers have them."""


class MeasuredCodecLaws(CodecLaws):
    """The laws of codecs, and of those that are a `petastore.schema.field.MeasuringCodec`."""

    def bombs(self, field: UnischemaField) -> st.SearchStrategy[Any] | None:  # noqa: ARG002 - subclasses use it
        """Cells of a few bytes that hold, or say that they hold, very much; the codec's own knowledge of its format.

        None tests with cells in which some bytes were replaced by large numbers. Only codecs that measure
        (`petastore.schema.field.MeasuringCodec`) are tested.
        """
        return None

    @_FEW
    @given(data=st.data())
    def test_decoding_takes_little_more_memory_than_the_measured_size(self, data: st.DataObject) -> None:
        """Measuring takes none for values; decoding takes what was measured and twice as much besides, at most."""
        case = self._drawn_case(data, lambda field: isinstance(codec_of(field), MeasuringCodec))
        if case is None:
            return
        codec, field = codec_of(case.field), case.field
        assert isinstance(codec, MeasuringCodec)
        honest, bombs = codec.encode(field, data.draw(case.values)), self.bombs(field)
        codec.decode(field, honest)  # first call, so that what a codec loads once is not counted
        cell = data.draw(_lying(honest) if bombs is None else bombs | _lying(honest))
        column = pa.array([cell], codec.storage_type(field))
        (said, measuring, refused), grown = grown_in_child(functools.partial(_measured, codec, cell, column, field))
        stored = _OTHER_BYTES + 4 * column.nbytes
        assert measuring <= stored, f"measuring took {measuring:,} bytes"
        assert set(refused) <= {"", "DecodeError"}, refused
        assert not refused or grown <= 3 * said + stored, f"the cell says {said:,} bytes, and it took {grown:,}"


@st.composite
def _lying(draw: st.DrawFn, cell: Any) -> Any:
    """The cell with large numbers in some places, most of them near the beginning or the end, where sizes stand."""
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
    """What a cell says that it takes, what asking it took, and how both faces refused it, if it was not too large."""
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
