"""Charts as SVG without scripts and styles, and images as PNG. Charts contain only numbers and escaped text."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.decoding.display import data_uri, png_bytes
from petastore.plan.report.feeds import Feeds

__all__ = ["bars", "feeds_image", "line"]

_WIDTH, _HEIGHT = 240, 64
_POINTS = 240
_LARGEST = 1e307
"""Numbers above this are scaled down before drawing, because their differences may be infinite."""

_RANKS = np.array(
    [
        [31, 119, 180], [255, 127, 14], [44, 160, 44], [214, 39, 40], [148, 103, 189],
        [140, 86, 75], [227, 119, 194], [127, 127, 127], [188, 189, 34], [23, 190, 207],
    ],
    dtype=np.uint8,
)  # fmt: skip
"""Colors of the ranks, repeated after ten ranks: the colors of matplotlib."""

_IMAGE_HEIGHT = 240


def bars(heights: Sequence[float] | NDArray[Any], labels: Sequence[str] | None = None) -> str:
    """Return a bar chart as SVG.

    Args:
        heights: Heights from 0.
        labels: Text that a browser shows when the pointer is over a bar; escaped here.

    Example:
        >>> bars([1, 2], ["<a>", "b"]).count("<rect"), "&lt;a&gt;" in bars([1, 2], ["<a>", "b"])
        (2, True)
    """
    most, count = max(float(max(heights, default=0)), 1e-300), max(len(heights), 1)
    width = _WIDTH / count
    parts = []
    for number, height in enumerate(heights):
        tall = max(_HEIGHT * float(height) / most, 1 if height else 0)
        title = "" if labels is None else f"<title>{html.escape(labels[number])}</title>"
        parts.append(
            f'<rect x="{number * width:.2f}" y="{_HEIGHT - tall:.2f}" width="{max(width - 1, width * 0.8):.2f}" '
            f'height="{tall:.2f}">{title}</rect>'
        )
    return _svg("".join(parts), "bars")


def line(values: NDArray[Any]) -> str:
    """Return a one-dimensional array as a line in SVG; a long array is drawn as minimum and maximum of each part.

    Example:
        >>> line(np.array([0.0, 1.0, 0.0])).count("polyline")
        1
    """
    numbers = np.nan_to_num(np.asarray(values, dtype=np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    if len(numbers) > _POINTS:
        starts = np.arange(_POINTS // 2) * len(numbers) // (_POINTS // 2)
        parts = [np.minimum.reduceat(numbers, starts), np.maximum.reduceat(numbers, starts)]
        numbers = np.stack(parts, axis=1).ravel()
    numbers = numbers / 4 if np.abs(numbers).max() > _LARGEST else numbers
    low, high = float(numbers.min()), float(numbers.max())
    across = np.linspace(0, _WIDTH, len(numbers))
    down = (_HEIGHT - 2) * ((high - numbers) / (high - low if high > low else 1)) + 1
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across.tolist(), down.tolist(), strict=True))
    return _svg(f'<polyline points="{points}"/>', "line")


def _svg(inside: str, kind: str) -> str:
    return f'<svg class="{kind}" viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img">{inside}</svg>'


def feeds_image(feeds: Feeds) -> str:
    """Draw which row group feeds which batch and rank: batches across, row groups down, ranks as colors.

    Returns:
        A PNG as a data URI, transparent where a batch has no rows of a row group. If there are only a few ranks, each
        has its own column.
    """
    groups = max(feeds.first_row_groups[-1], 1)
    columns = feeds.num_ranks if feeds.num_ranks <= len(_RANKS) else 1
    height, width = min(groups, _IMAGE_HEIGHT), max(len(feeds.looked_at), 1) * columns
    image = np.zeros((height, width, 4), np.uint8)
    down = feeds.row_groups * height // groups
    across = np.searchsorted(feeds.looked_at, feeds.batches) * columns + feeds.ranks % columns
    image[down, across, :3] = _RANKS[feeds.ranks % len(_RANKS)]
    image[down, across, 3] = 255
    return data_uri(png_bytes(image))
