"""Windows of several readers by weight."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from petastore.errors import RequestError
from petastore.once import once
from petastore.plan.mixture.mixture import Batching
from petastore.plan.windows.ngram import NGram
from petastore.plan.windows.windows import Windows
from petastore.readers.assembly.assemble import Assembler
from petastore.readers.loaded.loader import RowGroupLoader
from petastore.readers.mixed.mixed_reader import MixedAssembler, loaders_of
from petastore.readers.mixed.weighted_sampling import WeightedSamplingReader
from petastore.readers.reader import Reader
from petastore.readers.windows.assemble_windows import RowAssembler, WindowAssembler
from petastore.readers.windows.window_reader import Windowed, WindowReader, fields_of

__all__ = ["MixedRowAssembler", "WeightedSamplingWindows"]


@dataclasses.dataclass(frozen=True, eq=False)
class MixedRowAssembler(RowAssembler, MixedAssembler):
    """Makes the rows that windows of several datasets cover."""


class WeightedSamplingWindows(Windowed, WeightedSamplingReader):
    """What `WeightedSamplingReader` is where its readers give windows.

    Raises:
        RequestError: As `WeightedSamplingReader`, and for a `source_column`.
    """

    def __init__(
        self,
        readers: Sequence[Reader],
        probabilities: Sequence[Any],
        *,
        batching: Batching | None = None,
        seed: int | None = None,
        source_column: str | None = None,
    ) -> None:
        if source_column is not None:
            raise RequestError(f"source_column={source_column!r}, but windows have no such column")
        super().__init__(readers, probabilities, batching=batching, seed=seed)

    @property
    def ngram(self) -> NGram:  # type: ignore[override]
        """What a window is, with the fields of the first dataset."""
        return self._windowed[0].ngram

    @once
    def windows(self) -> Windows:
        """Which rows each window covers, row groups numbered through all datasets."""
        return Windows.joined([reader.windows for reader in self._windowed])

    @once
    def _windowed(self) -> list[WindowReader]:
        return [reader for reader in self.readers if isinstance(reader, WindowReader)]

    def _row_assembler(self, made: Assembler) -> RowAssembler:
        assert isinstance(made, MixedAssembler)  # noqa: S101 - made by `MixedReader`
        parts = tuple(RowAssembler(**fields_of(part), windows=self.windows) for part in made.parts)
        return MixedRowAssembler(**{**fields_of(made), "parts": parts}, windows=self.windows)

    def _row_loaders(self) -> Callable[[int], RowGroupLoader]:
        assembler = self._assembler
        assert isinstance(assembler, WindowAssembler)  # noqa: S101 - made by `Windowed`
        assert isinstance(assembler.rows, MixedRowAssembler)  # noqa: S101 - made by the method above
        return loaders_of(assembler.rows, self.workers.most_copied_bytes)
