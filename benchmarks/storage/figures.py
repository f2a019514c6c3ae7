"""Figure of a report: a measured quantity and its bounds."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Self

from benchmarks.bench.figures import shortened

__all__ = ["HEADER", "Figure", "line_of"]

HEADER = ("", "median", "least – most", "has to be", "")


@dataclasses.dataclass(frozen=True)
class Figure:
    """A quantity, as several rounds found it.

    Example:
        >>> Figure("requests", [66.0, 67.0], most=70).is_kept, Figure("seconds", [1.0]).is_kept
        (True, None)
    """

    what: str
    values: Sequence[float]
    unit: str = ""
    least: float | None = None
    """The median has to be as large."""

    most: float | None = None
    """The median may be as large."""

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> Self:
        """The figure that `dataclasses.asdict` made a dict of."""
        return cls(**stored)

    @property
    def median(self) -> float:
        """Over all rounds."""
        return statistics.median(self.values)

    @property
    def is_kept(self) -> bool | None:
        """Whether the median is what it has to be; None where nothing was asked of it."""
        if self.least is None and self.most is None:
            return None
        return (self.least is None or self.median >= self.least) and (self.most is None or self.median <= self.most)


def line_of(figure: Figure) -> tuple[str, ...]:
    """A line of the table.

    Example:
        >>> line_of(Figure("epoch", [2.0, 1.0, 4.0], "s", most=1.5))
        ('epoch', '2.00 s', '1.00 – 4.00', '≤ 1.5 s', 'not kept')
    """
    unit = f" {figure.unit}" if figure.unit else ""
    spread = f"{_shown(min(figure.values))} – {_shown(max(figure.values))}" if len(figure.values) > 1 else ""
    kept = {None: "", True: "kept", False: "not kept"}[figure.is_kept]
    return figure.what, f"{_shown(figure.median)}{unit}", spread, _asked(figure, unit), kept


def _asked(figure: Figure, unit: str) -> str:
    if figure.least is not None and figure.least == figure.most:
        return f"= {figure.least:g}{unit}"
    least = f"≥ {figure.least:g}{unit}" if figure.least is not None else ""
    most = f"≤ {figure.most:g}{unit}" if figure.most is not None else ""
    return ", ".join(filter(None, [least, most]))


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) and abs(value) >= 10 else shortened(value)
