"""`tune`: measure a reader of the user's dataset with several settings.

The result has the fastest setting.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack, cast

import numpy as np

from petastore.cache.folder import user_cache_directory
from petastore.dataset import Dataset, open_dataset
from petastore.errors import InvalidArgumentError, NoDataAvailableError
from petastore.front import make_reader
from petastore.plan.request import whole_number
from petastore.selectors import RowGroupSelectorBase
from petastore.tuning.race import Tuned, described, planned_trials, race, settings_to_try, tuned_by
from petastore.tuning.throughput import Throughput, ignore_progress, reader_throughput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from petastore.readers.options import PassedKwargs, RowGroupSelector, Urls

__all__ = ["tune"]

_PROBED_GROUPS: Final = 16
"""Number of row groups in the first sample, which shows how fast a reader is."""

_LEAST_GROUPS: Final = 8
"""Minimum number of row groups in a sample, so that several workers have work."""

_SAMPLES_IN_MEMORY: Final = 2
"""Minimum size of a remote sample, in multiples of the bytes that a reader prefetches.

A reader would fetch a smaller sample only once, but fetches a large dataset in each epoch.
"""

_PROBE_SHARE: Final = 1 / 8
"""Share of the time for the first measurement, and for filling the cache."""

_MOST: Final = 2
"""Maximum duration of a measurement, in multiples of its planned time.

A measurement that takes longer ends in the middle of an epoch.
"""

_EPOCH_SHARE: Final = 0.2
"""Share of a measurement that one epoch of the sample takes.

Whole epochs are measured, after one epoch to warm up.
"""


def tune(
    dataset_url: Urls | Dataset,
    *,
    batch_size: int | None = None,
    seconds: float = 60,
    on_progress: Callable[[int, int], object] | None = None,
    clock: Callable[[], float] = time.perf_counter,
    **arguments: Unpack[PassedKwargs],
) -> Tuned:
    """Find the settings of `make_reader` that read a dataset fastest on this machine.

    The function reads some row groups of the dataset again and again, for `seconds` in all, and measures the speed. It
    compares numbers of workers; the pool `"process"` with a transform; and a local disk cache for remote files. All
    settings give the same rows. Local files are read from the page cache after the first epoch.

    Args:
        dataset_url: Local path or URL of the dataset, a list of them, or an open `Dataset`.
        batch_size: Rows per batch, as training reads them; None reads row by row.
        seconds: Time for all measurements.
        on_progress: Function called with the number of finished and of planned measurements.
        clock: Function that returns seconds.
        **arguments: Arguments of `make_reader` that training uses, such as `shuffle_rows=True`. Arguments to try
            replace them.

    Returns:
        The measured rates, the best arguments and code to copy. Print it.

    Raises:
        InvalidArgumentError: An argument is invalid; the message names it.
        NoDataAvailableError: The dataset has no rows.
        DatasetNotFoundError: No dataset exists at the URL.

    Example:
        >>> import tempfile, petastore
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = petastore.write_dataset(folder + "/ids", {"id": list(range(1000))}, rows_per_row_group=100)
        ...     found = tune(folder + "/ids", batch_size=50, seconds=0.2, shuffle_rows=True)
        >>> found.best["shuffle_rows"], len(found.tried[0].rates) > 0
        (True, True)
    """
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < math.inf:
        raise InvalidArgumentError(f"seconds must be a number above 0, got {seconds!r:.80}. 60 is usually enough")
    if batch_size is not None:
        whole_number(batch_size, name="batch_size", least=1)
    began, given = clock(), arguments
    dataset = dataset_url
    if not isinstance(dataset, Dataset):
        of_storage = ("storage_options", "filesystem", "storage_timeout", "schema")
        stored: dict[str, Any] = {name: value for name, value in given.items() if name in of_storage}
        dataset = open_dataset(dataset, **stored)
        given = cast("PassedKwargs", {name: value for name, value in given.items() if name not in of_storage})
    of_trials: PassedKwargs = {"seed": 0, **given, "progress": False}  # a progress bar per reader would be confusing
    trials = _Trials(dataset, of_trials, batch_size, clock)
    trials.take_sample(_PROBED_GROUPS)
    probe = trials.throughput({}, trials.epoch_rows, max_seconds=seconds * _PROBE_SHARE)
    settings = settings_to_try(given, probe.diagnosis)
    ends, display, done = began + seconds, on_progress or ignore_progress, 0
    left_s = max(ends - clock(), 0.0)
    planned = planned_trials(len(settings), left_s)
    epoch_rows = left_s / planned * _EPOCH_SHARE * probe.rows_per_second
    trials.take_sample(math.ceil(epoch_rows * trials.groups / trials.epoch_rows))

    def measure(setting: PassedKwargs, share_s: float) -> float:
        nonlocal done
        display(min(done, planned), planned)
        done += 1
        return trials.rate(setting, share_s)

    with contextlib.ExitStack() as stack:
        if any("cache_type" in setting for setting in settings):
            settings = trials.fill_cache(settings, stack, max_seconds=seconds * _PROBE_SHARE)
        standings = race(settings, measure, seconds=ends - clock(), clock=clock)
    display(planned, planned)
    url = dataset.url if isinstance(dataset_url, (str, os.PathLike, Dataset)) else None
    return tuned_by(url, arguments, standings, default_workers=probe.diagnosis.counters.workers)


@dataclasses.dataclass(slots=True)
class _Trials:
    """Measurements of one dataset, over whole epochs of a sample of its row groups."""

    dataset: Dataset
    given: PassedKwargs
    batch_size: int | None
    clock: Callable[[], float]
    cache_location: str | None = None
    rates: dict[str, float] = dataclasses.field(default_factory=dict)
    selector: _Sample | None = None
    groups: int = 0
    epoch_rows: int = 0
    least_groups: int = _LEAST_GROUPS
    """Minimum number of row groups of the next sample."""
    overrun: float = 1.0
    """Duration of measurements divided by the duration that their rates predict.

    It is at least 1, because opening a reader and the first epoch take longer.
    """

    def take_sample(self, groups: int) -> None:
        """Choose a sample of at least `groups` row groups, evenly spaced.

        If the filters select no rows of the sample, it gets more row groups.
        """
        total = self.dataset.inventory.num_row_groups
        self.groups, self.epoch_rows = min(max(groups, self.least_groups), total), 0
        while not self.epoch_rows:
            chosen = np.linspace(0, total - 1, self.groups).astype(int).tolist()
            whole = self.given.get("rowgroup_selector")
            self.selector = None if self.groups == total else _Sample(frozenset(chosen), whole)
            with warnings.catch_warnings():
                if self.selector is not None:
                    warnings.filterwarnings("ignore", "none of the .* rows .* matches")  # true only for the sample
                with make_reader(self.dataset, **self.arguments_of({})) as reader:
                    self.epoch_rows = reader.num_rows
                    if self.epoch_rows:
                        self._require_more_than(reader.estimate_memory(self.batch_size or 1).prefetched_bytes)
            if not self.epoch_rows and self.selector is None:
                raise NoDataAvailableError(
                    f"{self.dataset.url} must have rows that the filters select, got none. Check the filters"
                )
            if not self.epoch_rows:
                self.groups = min(2 * self.groups, total)

    def _require_more_than(self, prefetched_bytes: int) -> None:
        """Make the next sample larger than the row groups that a reader keeps in memory."""
        mean = float(self.dataset.inventory.stored_bytes.mean())
        self.least_groups = max(_LEAST_GROUPS, math.ceil(_SAMPLES_IN_MEMORY * prefetched_bytes / max(mean, 1.0)))

    def fill_cache(
        self, settings: list[PassedKwargs], stack: contextlib.ExitStack, *, max_seconds: float
    ) -> list[PassedKwargs]:
        """Create a temporary disk cache, and fill it with the sample.

        It is in the user's cache directory, and therefore on the same disk.

        Args:
            settings: Settings to measure; at least one uses a cache.
            stack: Exit stack that deletes the cache at its end.
            max_seconds: Maximum duration of filling the cache.

        Returns:
            Settings that can be measured. If the directory is not writable, settings with a cache are left out.
        """
        parent = Path(self.given.get("cache_location") or user_cache_directory())
        cached = [setting for setting in settings if "cache_type" in setting]
        try:
            parent.mkdir(parents=True, exist_ok=True)
            self.cache_location = stack.enter_context(tempfile.TemporaryDirectory(prefix="tune-", dir=parent))
        except OSError:  # training could not use the cache either
            return [setting for setting in settings if setting not in cached]
        self.throughput(cached[0], 1, max_seconds=max_seconds)
        return settings

    def arguments_of(self, setting: PassedKwargs) -> PassedKwargs:
        """Return the arguments of `make_reader` for a setting, the sample and the cache."""
        found: PassedKwargs = {**self.given, **setting}
        if self.selector is not None:
            found["rowgroup_selector"] = self.selector
        if "cache_type" in setting:
            found["cache_location"] = self.cache_location
        return found

    def rate(self, setting: PassedKwargs, seconds: float) -> float:
        """Measure the rows per second of a setting.

        The measurement reads whole epochs, for about `seconds` seconds.
        """
        guess, began = self.rates.get(described(setting), self.rates[described({})]), self.clock()
        epochs = int(seconds / self.overrun * guess / self.epoch_rows) - 1  # the first one is the warm-up
        found = self.throughput(setting, max(epochs, 1) * self.epoch_rows, max_seconds=_MOST * seconds)
        if epochs > 1 and seconds > 0:
            self.overrun = max(1.0, self.overrun * math.sqrt((self.clock() - began) / seconds))
        return found.rows_per_second

    def throughput(self, setting: PassedKwargs, rows: int, *, max_seconds: float) -> Throughput:
        """Measure a setting after one epoch to warm up, and remember its rate."""
        arguments = self.arguments_of(setting)
        found = reader_throughput(
            self.dataset,
            warmup_cycles_count=self.epoch_rows,
            measure_cycles_count=rows,
            pool_type=arguments.pop("reader_pool_type", "thread"),
            loaders_count=arguments.pop("workers_count", None),
            reader_extra_args=arguments,
            spawn_new_process=False,
            batch_size=self.batch_size,
            max_seconds=max_seconds,
            clock=self.clock,
        )
        self.rates[described(setting)] = found.rows_per_second
        return found


@dataclasses.dataclass(frozen=True, slots=True)
class _Sample(RowGroupSelectorBase):
    """Row-group selector of a sample.

    If the user passed a selector, the sample has only row groups that both select.
    """

    groups: frozenset[int]
    whole: RowGroupSelector | None

    def get_index_names(self) -> list[str]:
        """Return the names of the indexes that the user's selector needs."""
        return [] if self.whole is None else list(self.whole.get_index_names())

    def select_row_groups(self, index_dict: Mapping[str, Any]) -> set[int]:
        """Return the numbers of the row groups in the sample."""
        return set(self.groups if self.whole is None else self.groups & set(self.whole.select_row_groups(index_dict)))
