"""Laws for `rows_of_step` and `steps_of_rows`, for Hypothesis: results equal the rows that ranks get from the plan.

Example:
    >>> from petastore.plan import Order, ReadRequest
    >>> from tests.laws.plan_laws import uneven_inventory
    >>> order = Order(seed=7, shuffle_row_groups=True, shuffle_rows=True, lanes=6, block_rows=20)
    >>> plan = Plan(uneven_inventory(50, seed=1), ReadRequest(("id",), order, epochs=2))
    >>> check_rows_of_steps(plan, ranks=3, batch_size=8)
    >>> check_steps_of_rows(plan, ranks=3, batch_size=8)
"""

from __future__ import annotations

import numpy as np

from petastore.plan import Cursor, Mixture, Plan
from petastore.testing.training import shards_of, train

__all__ = ["check_rows_of_steps", "check_steps_of_rows"]


def check_rows_of_steps(
    plan: Plan | Mixture, *, ranks: int, batch_size: int, after: Cursor | None = None, most: int = 60
) -> None:
    """Check that `rows_of_step` returns the rows of each rank, in order, for each step after a position."""
    plans = shards_of(plan, ranks)
    training = train(plans, batch_size, after=after, most=most)
    for step, epoch in enumerate(training.epochs.tolist()):
        found = plans[-1].rows_of_step(step, batch_size=batch_size, after=after)
        here = np.flatnonzero(training.steps == step)
        here = here[np.argsort(training.ranks[here], kind="stable")]
        assert found.epoch == epoch, step
        assert found.ranks.tolist() == training.ranks[here].tolist(), step
        assert found.numbers.tolist() == training.rows[here].tolist(), step
        assert found.valid.tolist() == training.valid[here].tolist(), step
        alone = plans[0].rows_of_step(step, batch_size=batch_size, rank=ranks - 1, after=after)
        assert alone.numbers.tolist() == found.of_rank(ranks - 1).numbers.tolist()


def check_steps_of_rows(
    plan: Plan | Mixture, *, ranks: int, batch_size: int, after: Cursor | None = None, most: int = 2000
) -> None:
    """Check that `steps_of_rows` returns the steps and ranks of each row, in each epoch that is read."""
    plans = shards_of(plan, ranks)
    training = train(plans, batch_size, after=after, most=most)
    numbers = np.arange(plan.inventory.num_rows)
    if isinstance(plan, Mixture) and plan.stop == "cycle":
        per_epoch = plan.steps_per_epoch(batch_size)
        epochs, is_whole = np.arange(training.num_steps) // per_epoch, training.num_steps % per_epoch == 0
    else:
        epochs, is_whole = training.epochs, training.num_steps < most
    for epoch in np.unique(epochs).tolist()[: None if is_whole else -1]:
        found = plans[0].steps_of_rows(numbers, batch_size=batch_size, epoch=epoch, after=after)
        of_epoch = training.valid & (epochs[training.steps] == epoch)
        given = np.stack([training.steps, training.ranks, training.rows])[:, of_epoch]
        assert np.array_equal(
            np.unique(np.stack([found.steps, found.ranks, found.rows]), axis=1), np.unique(given, axis=1)
        ), epoch
        assert (np.diff(found.steps) >= 0).all()
        if len(found):
            places = plans[0].rows_of_step(int(found.steps[0]), batch_size=batch_size, after=after).places()
            named = plans[0].steps_of_rows(places, batch_size=batch_size, epoch=epoch, after=after)
            assert int(found.steps[0]) in named.steps
