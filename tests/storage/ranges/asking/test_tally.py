"""What is asked of a storage is counted once, whoever asks."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

from petastore.storage.ranges.asking.tally import Counts, Tally


def test_each_count_is_added_to_its_own_whatever_threads_add() -> None:
    tally, more = Tally(), Counts(requests=1, bytes=10, again=2, hedged=3, damaged=4)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(tally.add, [more] * 400))
    assert tally.counts == Counts(400, 4_000, 800, 1_200, 1_600)


def test_a_copy_begins_at_0() -> None:
    tally = Tally()
    tally.add(Counts(requests=1))
    assert pickle.loads(pickle.dumps(tally)).counts == Counts()  # noqa: S301 - our own
    assert tally.counts == Counts(requests=1)
