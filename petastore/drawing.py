"""Draws which row group feeds which batch, of any plan. Needs matplotlib, and imports it when it draws.

It knows no plans: `Feeds` says what is drawn, and `petastore.plan.report.feeds.Feeds` is such a value.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from petastore.errors import MissingExtraError

__all__ = ["draw"]

_NAMED_RANKS = 10
"""Ranks whose colours can be told apart, and which a legend names; more are shades from first to last."""

_HEIGHT = 260
"""Points from the lowest row group to the highest one."""


class Feeds(Protocol):
    """Which row groups feed which batches on which ranks, as `petastore.plan.report.feeds.Feeds` has it."""

    @property
    def batches(self) -> NDArray[np.int64]:
        """Batch of each entry, shape (n,)."""

    @property
    def ranks(self) -> NDArray[np.int64]:
        """Its rank, shape (n,)."""

    @property
    def row_groups(self) -> NDArray[np.int64]:
        """Its row group, shape (n,)."""

    @property
    def looked_at(self) -> NDArray[np.int64]:
        """The batches that were looked at, ascending."""

    @property
    def num_batches(self) -> int:
        """Batches that there are."""

    @property
    def num_ranks(self) -> int:
        """Ranks."""

    @property
    def first_row_groups(self) -> tuple[int, ...]:
        """The first row group of each source, and the number of all."""


def draw(feeds: Feeds) -> Any:
    """A new figure: batches of the epoch to the right, row groups as they are stored up, ranks as colours.

    It belongs to nobody else: pyplot, and so any window, does not know it. `figure.savefig(path)` writes it.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib.collections import LineCollection
        from matplotlib.colors import Normalize
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("a picture of the order", package="matplotlib", extra="plot") from None
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    lines = LineCollection(
        _lines(feeds),
        array=feeds.ranks,
        cmap="tab10" if feeds.num_ranks <= _NAMED_RANKS else "viridis",
        norm=Normalize(0, max(_NAMED_RANKS, feeds.num_ranks) - 1),
        linewidths=_width(feeds),
        capstyle="butt",
        rasterized=True,
    )
    axes.add_collection(lines, autolim=False)
    for border in feeds.first_row_groups[1:-1]:
        axes.axhline(border - 0.5, color="black", linewidth=0.5)
    axes.set_xlim(-0.5, max(feeds.looked_at.max(initial=0), 1) + 0.5)
    axes.set_ylim(-0.5, max(feeds.first_row_groups[-1], 1) - 0.5)
    axes.set_xlabel("batch of the epoch")
    axes.set_ylabel("row group, as stored" if len(feeds.first_row_groups) <= 2 else "row group, source after source")
    axes.set_title(_title(feeds))
    _tell_ranks(figure, axes, lines, feeds)
    return figure


def _title(feeds: Feeds) -> str:
    title = "Which row group feeds which batch"
    looked_at, batches = len(feeds.looked_at), feeds.num_batches
    if looked_at == batches:
        return title
    if feeds.looked_at[-1] == looked_at - 1:
        return f"{title}: the first {looked_at:,} of {batches:,} batches"
    return f"{title}: {looked_at:,} of {batches:,} batches, evenly spaced"


def _lines(feeds: Feeds) -> list[NDArray[np.float64]]:
    """A line for each entry, long enough to meet that of the next batch; each of shape (2 ends, x and y)."""
    apart = np.diff(feeds.looked_at).max(initial=1)
    middle = np.stack([feeds.batches, feeds.row_groups], axis=1).astype(np.float64)
    half = np.array([apart / 2, 0.0])
    return list(np.stack([middle - half, middle + half], axis=1))


def _width(feeds: Feeds) -> float:
    """Width of a line in points: as row groups lie apart, but to be seen."""
    return float(np.clip(_HEIGHT / max(feeds.first_row_groups[-1], 1), 0.8, 8.0))


def _tell_ranks(figure: Any, axes: Any, lines: Any, feeds: Feeds) -> None:
    if feeds.num_ranks > _NAMED_RANKS:
        figure.colorbar(lines, ax=axes, label="rank")
    elif feeds.num_ranks > 1:
        ranks = range(feeds.num_ranks)
        handles = [axes.plot([], [], color=lines.to_rgba(rank), linewidth=6, label=f"rank {rank}")[0] for rank in ranks]
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
