"""The state of a reader: a cursor in a plan, as JSON small enough for every checkpoint. Pure.

```json
{"format": "petastore.state", "version": 1, "dataset": "5f…",
 "order": {"seed": 7, "shuffle_row_groups": true, "shuffle_rows": true, "lanes": 48, "block_rows": 2000,
           "reshuffle": "epoch"},
 "epoch": 3, "position": 123456, "pass": 0}
```

`pass` is the epoch that the pass began with. A position counts the rows that all ranks together have consumed of an
epoch, so a state says nothing of ranks, batch sizes, workers or tails: it is the same on every rank, and whoever goes
on from it may have other ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from petastore.errors import RequestError
from petastore.plan.cursor import Cursor
from petastore.plan.plan import Plan
from petastore.plan.request import Order

__all__ = ["STATE_VERSION", "dump_state", "resume"]

STATE_FORMAT = "petastore.state"
STATE_VERSION = 1
"""The newest version of the document that this release reads, and the one that it writes."""

_WHAT_TO_DO = "ask for the same, or begin without a state"


def dump_state(plan: Plan, cursor: Cursor) -> dict[str, Any]:
    """The state of a plan at a cursor: a new dict of JSON values, under 300 bytes.

    Example:
        >>> from petastore.inventory import Inventory
        >>> from petastore.plan.request import ReadRequest
        >>> order = Order(seed=7, shuffle_row_groups=True, shuffle_rows=False, lanes=1, block_rows=1)
        >>> plan = Plan(Inventory.of_rows([5]), ReadRequest(("id",), order))
        >>> resume(plan, dump_state(plan, Cursor(0, 3)))[1]
        Cursor(epoch=0, position=3, first_epoch=0)
    """
    return {
        "format": STATE_FORMAT,
        "version": STATE_VERSION,
        "dataset": plan.data_fingerprint,
        "order": dataclasses.asdict(plan.request.order),
        "epoch": cursor.epoch,
        "position": cursor.position,
        "pass": cursor.first_epoch,
    }


def resume(plan: Plan, state: Mapping[str, Any]) -> tuple[Plan, Cursor]:
    """The plan that goes on where a state was taken, and the cursor to go on from.

    What the request left to us (a seed that was drawn, lanes that were chosen) is taken from the state; what it asked
    for by name must agree with it.

    Args:
        plan: What is asked for now; shard, batch size, tail and epochs may differ from those of the state.
        state: From `dump_state`, also after a trip through JSON.

    Raises:
        RequestError: The state is none, of a newer version, or of another dataset or order; the difference is named.
    """
    cursor = _checked(state)
    if state["dataset"] != plan.data_fingerprint:
        raise RequestError(
            f"the state was taken over {state['dataset']}, but what is read here is {plan.data_fingerprint}: files "
            "were rewritten, added or removed since, or it is another dataset or filter; read what the state belongs "
            "to, or begin without a state"
        )
    request = plan.request
    order = _agreed_order(request.order, state["order"], chosen=request.chosen)
    if cursor.position > plan.num_rows:
        raise RequestError(f"the state is at position {cursor.position:,} of an epoch of {plan.num_rows:,} rows")
    return dataclasses.replace(plan, request=dataclasses.replace(request, order=order)), cursor


def _checked(state: Mapping[str, Any]) -> Cursor:
    if not isinstance(state, Mapping) or state.get("format") != STATE_FORMAT:
        raise RequestError(f"{state!r:.200} is no state of a reader; give what state_dict() returned")
    if state.get("version") != STATE_VERSION:
        raise RequestError(
            f"the state is of version {state.get('version')!r}, and this release of petastore reads {STATE_VERSION}"
        )
    place = [state.get(name) for name in ("epoch", "position", "pass")]
    counts = [count for count in place if isinstance(count, int) and not isinstance(count, bool) and count >= 0]
    if len(counts) < 3 or not isinstance(state.get("order"), Mapping) or not isinstance(state.get("dataset"), str):
        raise RequestError(f"{dict(state)!r:.300} is a damaged state of a reader; its dataset, order or place is gone")
    return Cursor(*counts)


def _agreed_order(asked: Order, taken: Mapping[str, Any], *, chosen: frozenset[str]) -> Order:
    values = dataclasses.asdict(asked)
    if set(taken) != set(values):
        raise RequestError(f"{dict(taken)!r:.300} is a damaged order in a state; it needs {', '.join(values)}")
    for name, value in values.items():
        if name not in chosen and taken[name] != value:
            raise RequestError(
                f"the state has {name}={taken[name]!r}, but now {name}={value!r} is asked for; {_WHAT_TO_DO}"
            )
    return Order(**taken)
