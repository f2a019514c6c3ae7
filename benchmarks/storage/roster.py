"""List of measurements: a description and a function for each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Final

from benchmarks.storage import again, damage, hits, images, opening, together
from benchmarks.storage.far import Bench
from benchmarks.storage.figures import Figure

__all__ = ["SHOWN", "Shown"]


@dataclasses.dataclass(frozen=True)
class Shown:
    """A measurement.

    Args:
        what: For the page.
        run: Takes it.
    """

    what: str
    run: Callable[[Bench], list[Figure]]


SHOWN: Final = {
    "open": Shown("Opening many files with the manifest, local disk, fresh processes", opening.many_files),
    "column": Shown(
        "An epoch of one column of 40 over S3, with what opening asks for; 64 row groups", opening.one_column
    ),
    "images": Shown(
        "An epoch of 49,152 JPEG crops over a line of 20 ms and 100 MB/s to S3, cold, shuffled by rows, as torch "
        "tensors; from making the reader to the last row",
        images.over_a_line,
    ),
    "second-images": Shown(
        "The same pictures with `cache_type='local-disk'`: the second epoch, after the line was closed",
        again.pictures_from_the_cache,
    ),
    "hit": Shown("A hit of the cache, all things counted, beside reading the page cache", hits.cost),
    "half": Shown(
        "A cache with room for half of the data; hits of a reader after its first epoch", hits.half_of_the_data
    ),
    "cold": Shown("8 processes that read the same data with one empty cache, all at once", together.cold_start),
    "limit": Shown(
        "8 processes that read twice what the limit allows, thrice in new orders; a sample each 10 ms",
        together.under_the_limit,
    ),
    "faults": Shown(
        "Epochs over a line with 1 % of resets, 1 % of 503 and 0.5 % of truncated bodies", damage.faults_over_an_epoch
    ),
    "damage": Shown("Single bytes of cache entries made others, at random", damage.damaged_entries),
}  # fmt: skip
