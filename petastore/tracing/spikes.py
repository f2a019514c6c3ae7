"""Loss spikes, and the rows, files and labels that occur in them unusually often."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from petastore.dataset import Dataset
from petastore.errors import InvalidArgumentError
from petastore.inventory import RowPlace
from petastore.plan.cursor import Cursor
from petastore.plan.mixture.mixture import Mixture
from petastore.plan.rank_plan import RankPlan
from petastore.plan.request import whole_number
from petastore.readers.random_access import RandomAccess
from petastore.tracing.losses import Losses

__all__ = ["Ranked", "SpikeRanking", "find_spikes", "rank_spikes"]

DEFAULT_WINDOW = 101
"""Number of consecutive losses with which a loss is compared, itself included."""

DEFAULT_THRESHOLD = 3.5
"""Modified z-score above which a loss is a spike, as Iglewicz and Hoaglin recommend."""

_MOST_STEPS = 2000
"""Maximum number of spikes, and of other steps, whose rows are compared."""

_AT_ONCE = 2**14
"""Number of windows whose medians are computed at once, to limit memory."""


def find_spikes(
    losses: ArrayLike, *, window: int | None = DEFAULT_WINDOW, threshold: float = DEFAULT_THRESHOLD
) -> NDArray[np.float64]:
    """Return a score for each loss that is a spike, and 0 for other losses.

    The score says how far the loss is above the losses around it.

    A loss is a spike if its modified z-score 0.6745 · (loss - median) / MAD is above the threshold (B. Iglewicz, D.
    Hoaglin: How to Detect and Handle Outliers, 1993; over a moving window it is known as the Hampel filter). The median
    is computed from the losses around a loss, as many before as after it, so that a steadily decreasing loss is not a
    spike. MAD is the median distance of the losses in the window from their medians. If less than half of the losses
    are spikes, the spikes hardly change median and MAD. Where MAD is 0, 0.8453 times the mean distance is used. A loss
    that is not finite is a spike with the score inf.

    Args:
        losses: Losses by step, shape (n,).
        window: Number of consecutive losses around each one, itself included; None means all.
        threshold: Modified z-score above which a loss is a spike.

    Returns:
        Modified z-score of each spike and 0 for other losses, shape (n,).

    Example:
        >>> find_spikes([1.0, 1.1, 0.9, 1.0, 5.0, 1.1, float("nan")]).round(1).tolist()
        [0.0, 0.0, 0.0, 0.0, 26.3, 0.0, inf]
    """
    values = np.asarray(losses, dtype=np.float64)
    if values.ndim != 1:
        raise InvalidArgumentError(f"losses must have one dimension, got shape {values.shape}")
    if window is not None:
        whole_number(window, name="window", least=3)
    if not threshold > 0:
        raise InvalidArgumentError(f"threshold must be above 0, got {threshold!r}")
    is_finite = np.isfinite(values)
    scores = np.where(is_finite, 0.0, np.inf)
    scores[is_finite] = _modified_z_scores(values[is_finite], window)
    return np.where(scores > threshold, scores, 0.0)


def _modified_z_scores(values: NDArray[np.float64], window: int | None) -> NDArray[np.float64]:
    if not len(values):
        return values
    if window is None:
        apart = values - np.median(values)
        spread = np.full(len(values), _spread(apart[None])[0])
    else:
        apart = values - _moving_median(values, window // 2)
        size = min(window, len(values))
        of_windows = _in_windows(apart, size, _spread)
        spread = of_windows[np.clip(np.arange(len(values)) - size // 2, 0, len(of_windows) - 1)]
    return np.divide(apart, spread, out=np.zeros_like(apart), where=spread > 0)


def _moving_median(values: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    """Return the moving median of values, shape (n,).

    The window of a value has as many values before as after it, at most `most` on each side.
    """
    count, most = len(values), min(most, (len(values) - 1) // 2)
    medians = np.empty(count)
    for near in range(most):  # values near both ends have fewer neighbors
        medians[near] = np.median(values[: 2 * near + 1])
        medians[count - 1 - near] = np.median(values[count - 1 - 2 * near :])
    medians[most : count - most] = _in_windows(values, 2 * most + 1, functools.partial(np.median, axis=1))
    return medians


def _spread(apart: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return an estimate of the standard deviation for each window, shape (windows,).

    The estimate is MAD / 0.6745, or 1.2533 times the mean distance if MAD is 0.

    Args:
        apart: Distances of the losses in each window from their medians, shape (windows, size).
    """
    distances = np.abs(apart)
    deviations = np.median(distances, axis=1) / 0.6745
    return np.where(deviations > 0, deviations, distances.mean(axis=1) * 1.2533)


def _in_windows(
    values: NDArray[np.float64], size: int, function: Callable[[NDArray[np.float64]], NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Apply a function to all windows of consecutive values; return one number per window.

    Args:
        values: Numbers, shape (n,).
        size: Values of a window; there are n - size + 1 windows.
        function: Function from windows, shape (windows, size), to numbers. It is called with some windows at a time, to
            limit memory.
    """
    windows = np.lib.stride_tricks.sliding_window_view(values, size)
    return np.concatenate([function(windows[first : first + _AT_ONCE]) for first in range(0, len(windows), _AT_ONCE)])


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Ranked:
    """Rows, files or labels that occur in spikes more often than expected.

    They are ordered by score, the highest first.

    The score is the log-likelihood ratio G² (P. Rayson, R. Garside: Comparing Corpora using Frequency Profiling, 2000).
    An item occurs k times in spikes and m times in other steps; all items together occur a times and b times. The
    expected numbers are E = a · (k + m) / (a + b) and F = b · (k + m) / (a + b). The score is 2 · (k · ln(k / E) +
    m · ln(m / F)). Chance gives a score above 10.8 with a probability below 0.1 %.
    """

    items: tuple[Any, ...]
    """The items: `(file, row group, row)` of a row, path of a file, or value of the label."""

    in_spikes: NDArray[np.int64]
    """Number of occurrences in spikes."""

    total: NDArray[np.int64]
    """Number of occurrences in spikes and in the other steps that were compared.

    For rows, all steps of the log are counted.
    """

    expected: NDArray[np.float64]
    """Number of occurrences in spikes that is expected by chance."""

    scores: NDArray[np.float64]
    """G² of each item, descending."""

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self.items)

    def __repr__(self) -> str:
        return f"Ranked({len(self):,}{f', first {self.items[0]!r}' if self.items else ''})"

    def as_dicts(self, most: int | None = None) -> list[dict[str, Any]]:
        """Return the first `most` items as new dicts of JSON values."""
        columns = (self.in_spikes.tolist(), self.total.tolist(), self.expected.tolist(), self.scores.tolist())
        lines = zip(self.items[:most], *(column[:most] for column in columns), strict=True)
        return [
            {"item": _plain(item), "in_spikes": k, "total": n, "expected": round(e, 3), "score": round(score, 3)}
            for item, k, n, e, score in lines
        ]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SpikeRanking:
    """Spikes of a training run, and the rows, files and labels that occur in them."""

    spikes: Losses
    """Losses that are spikes."""

    spike_scores: NDArray[np.float64]
    """Modified z-score of each spike; see `find_spikes`."""

    rows: Ranked
    """Rows in spikes; rows with equal scores are ordered by the scores of their label and their file."""

    files: Ranked
    """Files in spikes, counted by their rows."""

    labels: Ranked | None = None
    """Values of the label column in spikes, counted by their rows; None without a label column."""

    def exclude_rows(self, most: int | None = None) -> list[RowPlace]:
        """Return (file, row group, row) of the first `most` rows, for `exclude_rows=`.

        `make_reader` has this parameter. None returns all rows of the ranking.
        """
        return list(self.rows.items[:most])

    def __repr__(self) -> str:
        labels = "" if self.labels is None else f", labels {self.labels!r}"
        return f"SpikeRanking({len(self.spikes.losses):,} spikes; rows {self.rows!r}, files {self.files!r}{labels})"

    def as_dict(self, most: int | None = None) -> dict[str, Any]:
        """Return the spikes and rankings as a new dict of JSON values.

        Each ranking has at most `most` items.
        """
        spikes = self.spikes
        columns: dict[str, Any] = {"step": spikes.steps, "rank": spikes.ranks}
        names = [name for name, values in columns.items() if values is not None]
        entries = [
            dict(zip(names, numbers, strict=True))
            for numbers in zip(*(columns[n].tolist() for n in names), strict=True)
        ] or [{"item": list(place)} for place in spikes.rows or ()]
        scores = zip(entries, spikes.losses.tolist(), self.spike_scores.tolist(), strict=True)
        return {
            "spikes": [{**entry, "loss": _plain(loss), "score": _plain(score)} for entry, loss, score in scores],
            "rows": self.rows.as_dicts(most),
            "files": self.files.as_dicts(most),
            **({} if self.labels is None else {"labels": self.labels.as_dicts(most)}),
        }


def _plain(value: Any) -> Any:
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, tuple):
        return list(plain)
    if isinstance(plain, float):
        return round(plain, 6) if np.isfinite(plain) else str(plain)
    return plain if isinstance(plain, (str, int)) or plain is None else str(plain)


def rank_spikes(
    plan: RankPlan,
    losses: Losses,
    *,
    batch_size: int,
    after: Cursor | None = None,
    dataset: Dataset | Sequence[Dataset] | None = None,
    label: str | None = None,
    window: int = DEFAULT_WINDOW,
    threshold: float = DEFAULT_THRESHOLD,
) -> SpikeRanking:
    """Find the spikes of a training run, and rank what occurs in them most.

    Rows, files and labels are ranked if they occur more often in spikes than in other steps. The plan computes the rows
    of each step, so only the label column is read. At most 2,000 spikes (those with the highest scores) are compared
    with at most 2,000 evenly spaced other steps; the occurrences of rows are counted in all steps of the log.

    Args:
        plan: Plan of the training run, such as `reader.plan`, with its number of ranks.
        losses: Losses of steps, of steps and ranks, or of rows.
        batch_size: Rows per full batch on one rank.
        after: Position from which steps count; see `rows_of_step`.
        dataset: Dataset of the plan, or the datasets of a mixture; needed for `label`.
        label: Name of a column of scalars whose values are ranked; None ranks rows and files only.
        window: Number of consecutive losses around each one, for `find_spikes`.
        threshold: Modified z-score above which a loss is a spike, for `find_spikes`.

    Raises:
        InvalidArgumentError: An argument is invalid; the message names it.

    Example:
        >>> import tempfile, petastore
        >>> url = tempfile.mkdtemp() + "/rows"
        >>> _ = petastore.write_dataset(url, {"label": ["bad" if n in (5, 33) else "good" for n in range(40)]})
        >>> dataset = petastore.open_dataset(url)
        >>> plan = dataset.plan(shuffle_row_groups=False)
        >>> losses = Losses(np.array([1, 9, 1, 1, 1, 1, 1, 1.1, 9, 1]), steps=np.arange(10))
        >>> ranking = rank_spikes(plan, losses, batch_size=4, dataset=dataset, label="label")
        >>> ranking.spikes.steps.tolist(), ranking.labels.items
        ([1, 8], ('bad',))
    """
    if label is not None and dataset is None:
        raise InvalidArgumentError(
            f"dataset must be given with label={label!r}, got None. Pass the dataset of the plan"
        )
    if losses.steps is None:
        seen = _of_rows(plan, losses, threshold)
    else:
        seen = _of_steps(plan, losses, batch_size, after, window, threshold)
    inventory, files = plan.named_inventory, plan.inventory.file[seen.groups]
    names = [file.path for file in inventory.files]
    of_files = _scored(names, _counts(files, seen.in_spike, len(names)))
    of_labels, label_of_row = None, np.zeros(len(seen.numbers))
    if label is not None and dataset is not None:
        codes, values = _labels(plan, dataset, label, seen.numbers)
        of_labels = _scored(values, _counts(codes, seen.in_spike, len(values)))
        label_of_row = of_labels.scores[codes]
    # candidates: each row that occurs in a spike, once; first: index of one occurrence of the row
    candidates, first = np.unique(np.where(seen.in_spike, seen.numbers, -1), return_index=True)
    kept = candidates >= 0
    candidates, first = candidates[kept], first[kept]
    paths, ordinals = inventory.places_of(seen.groups[first])
    rows = candidates - inventory.first_rows[seen.groups[first]]
    places = list(zip(paths.tolist(), ordinals.tolist(), rows.tolist(), strict=True))
    of_rows = _scored(places, seen.row_counts(candidates))
    by = (seen.strength[first], of_files.scores[files[first]], label_of_row[first], of_rows.scores)
    return SpikeRanking(
        spikes=seen.spikes,
        spike_scores=seen.spike_scores,
        rows=_in_order(of_rows, np.lexsort([-scores for scores in by])),
        files=_by_score(of_files),
        labels=None if of_labels is None else _by_score(of_labels),
    )


_Counts: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64], int, int]
"""Numbers of occurrences: of each item in spikes and in all compared steps, and of all items together in both.

The arrays have the shape (items,)."""


def _counts(codes: NDArray[Any], in_spike: NDArray[np.bool_], items: int) -> _Counts:
    """Count the occurrences of items (rows, files or labels).

    Args:
        codes: Number of the item of each occurrence; shape (occurrences,).
        in_spike: Whether each occurrence is in a spike; shape (occurrences,).
        items: Number of items.
    """
    in_spikes, total = np.bincount(codes[in_spike], minlength=items), np.bincount(codes, minlength=items)
    return in_spikes, total, int(in_spike.sum()), len(in_spike)


def _scored(items: Sequence[Any], counts: _Counts) -> Ranked:
    """Return all items with their scores, in the given order; items that are not more often in spikes have score 0."""
    in_spikes, total, spikes, every = counts
    expected = total.astype(np.float64) * (spikes / max(every, 1))
    elsewhere, expected_elsewhere = total - in_spikes, total - expected
    ratio = np.divide(in_spikes, expected, out=np.ones(len(total)), where=in_spikes > 0)
    other = np.divide(elsewhere, expected_elsewhere, out=np.ones(len(total)), where=elsewhere > 0)
    scores: NDArray[np.float64] = 2.0 * (in_spikes * np.log(ratio) + elsewhere * np.log(other))
    scores = np.where(in_spikes > expected, np.maximum(scores, 0.0), 0.0)
    return Ranked(tuple(items), in_spikes, total, expected, scores)


def _in_order(scored: Ranked, order: NDArray[np.int64]) -> Ranked:
    """Return the items with a score above 0, in the order of their given indices."""
    order = order[scored.scores[order] > 0]
    items = tuple(scored.items[number] for number in order.tolist())
    return Ranked(items, scored.in_spikes[order], scored.total[order], scored.expected[order], scored.scores[order])


def _by_score(scored: Ranked) -> Ranked:
    """Return the items with a score above 0, by descending score."""
    return _in_order(scored, np.argsort(-scored.scores, kind="stable"))


@dataclasses.dataclass(frozen=True, eq=False)
class _Seen:
    """Occurrences of rows in spikes and in other steps, to compare them."""

    numbers: NDArray[np.int64]
    """Row number in the dataset of each occurrence."""

    groups: NDArray[np.int64]
    in_spike: NDArray[np.bool_]
    strength: NDArray[np.float64]
    """Score of the spike in which each occurrence is; 0 for occurrences in other steps."""

    spikes: Losses
    spike_scores: NDArray[np.float64]
    row_counts: Callable[[NDArray[np.int64]], _Counts]
    """Function from row numbers to the numbers of occurrences of these rows."""


def _of_rows(plan: RankPlan, losses: Losses, threshold: float) -> _Seen:
    """Return the occurrences of rows in a log that has a loss for each row.

    Each entry of the log is one occurrence. It is in a spike if its loss is a spike among all losses of the log.
    """
    scores = find_spikes(losses.losses, window=None, threshold=threshold)
    index, groups, rows = plan.find_rows(losses.rows or (), name="rows")
    numbers, in_spike = plan.inventory.first_rows[groups] + rows, scores[index] > 0

    def row_counts(candidates: NDArray[np.int64]) -> _Counts:
        place = np.minimum(np.searchsorted(candidates, numbers), max(len(candidates) - 1, 0))
        known = candidates[place] == numbers if len(candidates) else np.zeros(len(numbers), np.bool_)
        in_spikes = np.bincount(place[known & in_spike], minlength=len(candidates))
        total = np.bincount(place[known], minlength=len(candidates))
        return in_spikes, total, int(in_spike.sum()), len(in_spike)

    which = np.flatnonzero(scores)
    places = tuple((losses.rows or ())[number] for number in which.tolist())
    spikes = Losses(losses.losses[which], rows=places)
    return _Seen(numbers, groups, in_spike, scores[index], spikes, scores[which], row_counts)


def _of_steps(
    plan: RankPlan,
    losses: Losses,
    batch_size: int,
    after: Cursor | None,
    window: int,
    threshold: float,
) -> _Seen:
    """Return the occurrences of rows in spikes and in other steps.

    The plan computes the rows of each step.
    """
    steps, ranks = losses.steps, losses.ranks
    assert steps is not None  # noqa: S101 - the caller has checked it
    count = plan.request.shard.count
    own = np.full(len(steps), -1, dtype=np.int64) if ranks is None else ranks
    order = np.lexsort((own, steps))
    steps, own, values = steps[order], own[order], losses.losses[order]
    scores = np.zeros(len(steps))
    for rank in np.unique(own).tolist():
        scores[own == rank] = find_spikes(values[own == rank], window=window, threshold=threshold)
    spikes, others = np.flatnonzero(scores), np.flatnonzero(scores == 0)
    strongest = spikes[np.argsort(-scores[spikes], kind="stable")[:_MOST_STEPS]]
    some = others[np.unique(np.linspace(0, max(len(others) - 1, 0), min(len(others), _MOST_STEPS)).astype(int))]
    looked_at = np.sort(np.concatenate([strongest, some]))
    numbers, groups, sizes = [np.empty(0, np.int64)], [np.empty(0, np.int64)], []
    for step, rank in zip(steps[looked_at].tolist(), own[looked_at].tolist(), strict=True):
        rows = plan.rows_of_step(step, batch_size=batch_size, rank=None if rank < 0 else rank, after=after)
        numbers.append(rows.numbers[rows.valid])
        groups.append(rows.groups[rows.valid].astype(np.int64))
        sizes.append(len(groups[-1]))
    # keys: number of each loss's step and rank, ascending
    keys = steps if ranks is None else steps * count + own

    def row_counts(candidates: NDArray[np.int64]) -> _Counts:
        in_spikes, total = (np.zeros(len(candidates), dtype=np.int64) for _ in range(2))
        for epoch in _epochs(plan, steps, batch_size, after) if len(candidates) else ():
            found = plan.steps_of_rows(candidates, batch_size=batch_size, epoch=epoch, after=after)
            key = found.steps if ranks is None else found.steps * count + found.ranks
            place = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
            known = keys[place] == key
            total += np.bincount(found.rows[known], minlength=len(candidates))
            in_spikes += np.bincount(found.rows[known & (scores[place] > 0)], minlength=len(candidates))
        return in_spikes, total, len(spikes), len(steps)

    of_ranks = None if ranks is None else own[spikes]
    return _Seen(
        numbers=np.concatenate(numbers),
        groups=np.concatenate(groups),
        in_spike=np.repeat(scores[looked_at] > 0, sizes),
        strength=np.repeat(scores[looked_at], sizes),
        spikes=Losses(values[spikes], steps=steps[spikes], ranks=of_ranks),
        spike_scores=scores[spikes],
        row_counts=row_counts,
    )


def _epochs(plan: RankPlan, steps: NDArray[np.int64], batch_size: int, after: Cursor | None) -> range:
    """Return the range of epochs from that of the first step to that of the last step.

    `steps` ascend. Epochs are numbered as in `steps_of_rows`.
    """
    if not len(steps):
        return range(0)
    first, last = int(steps[0]), int(steps[-1])
    if isinstance(plan, Mixture) and plan.stop == "cycle":
        begin, ordinary = (after or Cursor()).epoch, plan.steps_per_epoch(batch_size)
        return range(begin + first // ordinary, begin + last // ordinary + 1)
    begin, end = (plan.rows_of_step(step, batch_size=batch_size, rank=0, after=after).epoch for step in (first, last))
    return range(begin, end + 1)


def _labels(
    plan: RankPlan, dataset: Dataset | Sequence[Dataset], label: str, numbers: NDArray[np.int64]
) -> tuple[NDArray[np.int64], list[Any]]:
    """Return the label of each row, as an index in the list of distinct labels, and this list.

    Args:
        plan: Plan of the training run.
        dataset: Dataset of the plan, or the datasets of a mixture.
        label: Name of the label column.
        numbers: Row numbers in the dataset, or counted across the sources of a mixture.
    """
    datasets = [dataset] if isinstance(dataset, Dataset) else list(dataset)
    if len(datasets) != len(plan.sources):
        raise InvalidArgumentError(
            f"dataset must be a list with one dataset per source ({len(plan.sources)}), got {len(datasets)}"
        )
    distinct, where = np.unique(numbers, return_inverse=True)
    borders = np.append(plan.inventory.first_rows, plan.inventory.num_rows)[plan.first_groups]
    parts = []
    for one, first, stop in zip(datasets, borders[:-1].tolist(), borders[1:].tolist(), strict=True):
        access = RandomAccess(one, [label])
        (field,) = access.schema
        if not field.is_scalar:
            raise InvalidArgumentError(f"label must name a column of scalars, got {label!r} of shape {field.shape}")
        parts.append(access.take(distinct[(distinct >= first) & (distinct < stop)] - first)[field.name])
    arrays = [pa.array(np.ma.getdata(part), mask=np.ma.getmaskarray(part)) for part in parts]
    encoded = pa.chunked_array(arrays).combine_chunks().dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy()[where].astype(np.int64), encoded.dictionary.to_pylist()
