"""Where workers that take turns stand, as JSON. Pure.

Wherever a cursor says it, the state is that of any reader (`petastore.plan.state`). Inside a round of batches, and for
one worker of several, it is where the pass began and how many batches were made since:

```json
{"format": "petastore.workers", "version": 1, "begin": {"format": "petastore.state", …}, "given": 17,
 "batch_size": 64, "workers": 4, "ranks": 1, "worker": 2}
```

Such a state only goes on with as many workers and ranks and with batches as large as then. `worker` is null where all
workers of a rank are meant.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from petastore.errors import InvalidArgumentError
from petastore.plan.cursor import Cursor
from petastore.plan.plan import Plan
from petastore.plan.sharing.workers import WorkerPlan, cursor_after
from petastore.plan.state import dump_state, resume

__all__ = ["dump_place", "resume_place"]

_FORMAT, _VERSION = "petastore.workers", 1


def dump_place(plan: WorkerPlan, given: int, batch_size: int, *, of_all: bool) -> dict[str, Any]:
    """The state after some batches of a pass: a new dict of JSON values.

    Args:
        plan: The plan of a worker; it says where the pass began.
        given: Batches that were made: by all workers together, or by the one whose plan it is.
        batch_size: Their rows.
        of_all: Which of the two.
    """
    alone = plan.worker.count == 1
    cursor = cursor_after(plan, given, batch_size) if of_all or alone else None
    if cursor is not None:
        return dump_state(plan, cursor)
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "begin": dump_state(plan, plan.begin),
        "given": given,
        "batch_size": batch_size,
        "workers": plan.worker.count,
        "ranks": plan.request.shard.count,
        "worker": None if of_all else plan.worker.index,
    }


def resume_place(
    plan: Plan, state: Mapping[str, Any], *, batch_size: int, workers: int, worker: int | None
) -> tuple[Plan, Cursor, int]:
    """The plan that goes on, where its pass began, and how many batches were made since.

    Args:
        plan: What is asked for now.
        state: From `dump_place`, or of any reader.
        batch_size: Rows of a batch now.
        workers: Workers of a rank now.
        worker: The worker whose batches were counted; None where all were.

    Raises:
        InvalidArgumentError: The state is none, of another dataset or order, or of other workers; the difference is
            named.
    """
    if not isinstance(state, Mapping) or state.get("format") != _FORMAT:
        return *resume(_as_it_was(plan), state), 0
    if state.get("version") != _VERSION:
        raise InvalidArgumentError(
            f"the state is of version {state.get('version')!r}, and this release of petastore reads {_VERSION}"
        )
    now = {"batch_size": batch_size, "workers": workers, "ranks": plan.request.shard.count, "worker": worker}
    for name, value in now.items():
        if state.get(name) != value:
            raise InvalidArgumentError(
                f"the state was taken in the middle of a round of workers with {name}={state.get(name)!r}, but here it "
                f"is {value!r}; go on with the same, or from a state that was taken after a multiple of "
                f"{state.get('workers')} batches"
            )
    given = state.get("given")
    if (
        isinstance(given, bool)
        or not isinstance(given, int)
        or given < 0
        or not isinstance(state.get("begin"), Mapping)
    ):
        raise InvalidArgumentError(f"{dict(state)!r:.300} is a damaged state of workers")
    return *resume(_as_it_was(plan), state["begin"]), given


def _as_it_was(plan: Plan) -> Plan:
    """The plan, asked so that it goes on in the order of a state: what was made is counted in that order."""
    order = dataclasses.replace(plan.request.order, dealt_to=None)
    return dataclasses.replace(plan, request=dataclasses.replace(plan.request, order=order))
