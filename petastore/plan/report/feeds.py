"""Row groups from which each batch takes rows, as data or as a matplotlib figure.

No file is read or written.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.errors import MissingExtraError
from petastore.plan.batches.epoch_batches import EpochBatches
from petastore.plan.batches.spans import Span
from petastore.plan.order.order import EpochOrder
from petastore.plan.report.explain import sampled_steps
from petastore.plan.request import Shard

__all__ = ["MOST_BATCHES", "Feeds", "draw", "feeds_of_order", "feeds_of_spans"]

MOST_BATCHES = 200
"""Maximum number of batches of an epoch that the report contains."""


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Feeds:
    """Row groups from which each batch gets rows, as parallel arrays.

    The arrays have one entry per (batch, rank, row group).

    Example:
        >>> from petastore.plan.request import Order, LastBatch
        >>> order = Order(seed=0, shuffle_row_groups=False, shuffle_rows=False, lanes=2, block_rows=1)
        >>> batches = EpochBatches(num_rows=8, batch_size=2, ranks=2, lanes=2, last_batch=LastBatch.EVEN)
        >>> feeds = feeds_of_order(EpochOrder(np.array([4, 4]), order, 0), batches, row_groups=2)
        >>> list(zip(feeds.batches.tolist(), feeds.ranks.tolist(), feeds.row_groups.tolist()))
        [(0, 0, 0), (0, 1, 1), (1, 0, 0), (1, 1, 1)]
    """

    batches: NDArray[np.int64]
    """Number of the batch in the epoch, from 0; entries are sorted by it."""

    ranks: NDArray[np.int64]
    """Rank that gets the batch, from 0."""

    row_groups: NDArray[np.int64]
    """Row group from which the batch gets rows, numbered across the dataset."""

    sampled_batches: NDArray[np.int64]
    """Numbers of the batches in the report, ascending; other batches have no entries."""

    num_batches: int
    """Number of batches of the epoch on each rank."""

    num_ranks: int
    """Number of ranks."""

    first_row_groups: tuple[int, ...]
    """Number of each source's first row group, then the total number of row groups.

    Without a mixture, `(0, total)`."""


def feeds_of_order(order: EpochOrder, batches: EpochBatches, *, row_groups: int) -> Feeds:
    """Return the row groups from which each batch of a plan's epoch gets rows.

    For a long epoch, the result has only some evenly spaced batches.

    Args:
        order: Order of the epoch.
        batches: Division of the epoch into batches.
        row_groups: Number of row groups of the dataset.
    """
    sampled_batches = sampled_steps(batches.steps, MOST_BATCHES)

    def looks() -> Iterator[tuple[int, int, NDArray[np.int32]]]:
        for rank in range(batches.ranks):
            for step in sampled_batches.tolist():
                share = batches.share(Shard(rank, batches.ranks), step, step + 1)
                yield step, rank, order.rows_at(share.positions)[0]

    return _feeds(
        looks(), sampled_batches, num_batches=batches.steps, num_ranks=batches.ranks, first_row_groups=(0, row_groups)
    )


def feeds_of_spans(spans: Sequence[Iterable[Span]], *, num_batches: int, first_row_groups: tuple[int, ...]) -> Feeds:
    """Return the row groups from which the first batches of an epoch get rows.

    Args:
        spans: Spans (groups of consecutive batches) of each rank, from the first batch of the epoch on.
        num_batches: Number of batches of the epoch.
        first_row_groups: As in `Feeds`.
    """
    sampled_batches = np.arange(min(num_batches, MOST_BATCHES))

    def looks() -> Iterator[tuple[int, int, NDArray[np.int32]]]:
        for rank, of_rank in enumerate(spans):
            batches = (span.groups[a:b] for span in of_rank for a, b in itertools.pairwise(span.offsets.tolist()))
            for batch, groups in zip(sampled_batches.tolist(), batches, strict=False):
                yield batch, rank, groups

    return _feeds(
        looks(), sampled_batches, num_batches=num_batches, num_ranks=len(spans), first_row_groups=first_row_groups
    )


def _feeds(
    looks: Iterable[tuple[int, int, NDArray[np.int32]]],
    sampled_batches: NDArray[np.int64],
    *,
    num_batches: int,
    num_ranks: int,
    first_row_groups: tuple[int, ...],
) -> Feeds:
    """Return the row groups from which given batches get rows, each row group once.

    Args:
        looks: Tuples of batch, rank, and the row group of each of this rank's rows in the batch.
        sampled_batches: Numbers of the batches, ascending.
        num_batches: Number of batches of the epoch.
        num_ranks: Number of ranks.
        first_row_groups: As in `Feeds`.
    """
    # entries: shape (n, 3), with the columns batch, rank and row group
    parts = [np.empty((0, 3), dtype=np.int64)]
    for batch, rank, groups in looks:
        distinct = np.unique(groups).astype(np.int64)
        parts.append(np.stack([np.full_like(distinct, batch), np.full_like(distinct, rank), distinct], axis=1))
    entries = np.concatenate(parts)
    entries = entries[np.lexsort(entries.T[::-1])]
    return Feeds(entries[:, 0], entries[:, 1], entries[:, 2], sampled_batches, num_batches, num_ranks, first_row_groups)


_NAMED_RANKS = 10
"""Maximum number of ranks with distinct colors and a legend.

More ranks get a color scale."""

_HEIGHT = 260
"""Approximate height of the plot area in points."""


def draw(feeds: Feeds) -> Any:
    """Return a new figure of the row groups from which each batch gets rows.

    Batches are on the x axis, row groups in file order on the y axis, and ranks are colors. The figure is not
    registered with pyplot, so no window opens. `figure.savefig(path)` writes it.

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
    axes.set_xlim(-0.5, max(feeds.sampled_batches.max(initial=0), 1) + 0.5)
    axes.set_ylim(-0.5, max(feeds.first_row_groups[-1], 1) - 0.5)
    axes.set_xlabel("batch of the epoch")
    axes.set_ylabel("row group, as stored" if len(feeds.first_row_groups) <= 2 else "row group, source after source")
    axes.set_title(_title(feeds))
    _add_rank_legend(figure, axes, lines, feeds)
    return figure


def _title(feeds: Feeds) -> str:
    """Return the title of the figure, with the number of batches if it is a sample."""
    title = "Which row group feeds which batch"
    sampled_batches, batches = len(feeds.sampled_batches), feeds.num_batches
    if sampled_batches == batches:
        return title
    if feeds.sampled_batches[-1] == sampled_batches - 1:
        return f"{title}: the first {sampled_batches:,} of {batches:,} batches"
    return f"{title}: {sampled_batches:,} of {batches:,} batches, evenly spaced"


def _lines(feeds: Feeds) -> list[NDArray[np.float64]]:
    """Return a horizontal line for each entry, centered on its batch.

    Each line is an array with its two ends as rows, and x and y as columns.
    """
    apart = np.diff(feeds.sampled_batches).max(initial=1)
    middle = np.stack([feeds.batches, feeds.row_groups], axis=1).astype(np.float64)
    half = np.array([apart / 2, 0.0])
    return list(np.stack([middle - half, middle + half], axis=1))


def _width(feeds: Feeds) -> float:
    """Return the line width in points.

    It is the distance between row groups, but large enough to be visible.
    """
    return float(np.clip(_HEIGHT / max(feeds.first_row_groups[-1], 1), 0.8, 8.0))


def _add_rank_legend(figure: Any, axes: Any, lines: Any, feeds: Feeds) -> None:
    """Add a legend of ranks, or a color bar for many ranks; add nothing for one rank."""
    if feeds.num_ranks > _NAMED_RANKS:
        figure.colorbar(lines, ax=axes, label="rank")
    elif feeds.num_ranks > 1:
        ranks = range(feeds.num_ranks)
        handles = [axes.plot([], [], color=lines.to_rgba(rank), linewidth=6, label=f"rank {rank}")[0] for rank in ranks]
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
