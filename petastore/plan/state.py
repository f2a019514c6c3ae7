"""The state of a reader: a cursor in a plan, as JSON small enough for every checkpoint. Pure.

```json
{"format": "petastore.state", "version": 1, "dataset": "5f…",
 "order": {"seed": 7, "shuffle_row_groups": true, "shuffle_rows": true, "lanes": 48, "block_rows": 2000,
           "reshuffle": "epoch"},
 "epoch": 3, "position": 123456, "pass": 0}
```

`pass` is the epoch that the pass began with. A position counts the rows that all ranks together have consumed of an
epoch, so a state says nothing of batch sizes, workers or tails: it is the same on every rank, and whoever goes on from
it may have other ones, and another number of ranks. Where row groups are dealt to ranks, `order` says to how many, by
`dealt_to`: their epoch is finished as it was dealt, and the next one is dealt to those that there are then.

A mixture has, in place of `order`, what makes it this mixture, with the order of each source as a list of its values:

```json
{"mixture": {"weights": [3, 1], "stop": "first_exhausted", "batching": "mixed", "orders": [[7, true, …], …],
             "seed": 0, "rows": 5000}}
```

Where each batch is of one source, `taken` says how many rows of each source were consumed of the epoch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, overload

from petastore.errors import InvalidArgumentError
from petastore.plan.cursor import Cursor, MixedCursor
from petastore.plan.plan import Plan
from petastore.plan.request import Order, Shard

if TYPE_CHECKING:
    from petastore.plan.mixture.mixture import Mixture

__all__ = ["STATE_VERSION", "dump_state", "resharded", "resume"]

STATE_FORMAT = "petastore.state"
STATE_VERSION = 1
"""The newest version of the document that this release reads, and the one that it writes."""

_WHAT_TO_DO = "ask for the same, or begin without a state"


def dump_state(plan: Plan | Mixture, cursor: Cursor) -> dict[str, Any]:
    """The state of a plan at a cursor: a new dict of JSON values, under 300 bytes; of a mixture, some 60 more a source.

    Example:
        >>> from petastore.inventory import Inventory
        >>> from petastore.plan.request import ReadRequest
        >>> order = Order(seed=7, shuffle_row_groups=True, shuffle_rows=False, lanes=1, block_rows=1)
        >>> plan = Plan(Inventory.of_rows([5]), ReadRequest(("id",), order))
        >>> resume(plan, dump_state(plan, Cursor(0, 3)))[1]
        Cursor(epoch=0, position=3, first_epoch=0)
    """
    if not isinstance(plan, Plan):
        order = {"mixture": plan.recipe() | {"seed": plan.seed, "rows": plan.num_rows}}
    else:
        order = {"order": plan.order_in(cursor.epoch).as_dict()}
    return {
        "format": STATE_FORMAT,
        "version": STATE_VERSION,
        "dataset": plan.data_fingerprint,
        **order,
        "epoch": cursor.epoch,
        "position": cursor.position,
        "pass": cursor.first_epoch,
        **({"taken": list(cursor.taken)} if isinstance(cursor, MixedCursor) else {}),
    }


@overload
def resume(plan: Plan, state: Mapping[str, Any]) -> tuple[Plan, Cursor]: ...
@overload
def resume(plan: Mixture, state: Mapping[str, Any]) -> tuple[Mixture, Cursor]: ...
@overload
def resume(plan: Plan | Mixture, state: Mapping[str, Any]) -> tuple[Plan | Mixture, Cursor]: ...
def resume(plan: Plan | Mixture, state: Mapping[str, Any]) -> tuple[Plan | Mixture, Cursor]:
    """The plan that goes on where a state was taken, and the cursor to go on from.

    What the request left to us (a seed that was drawn, lanes that were chosen) is taken from the state; what it asked
    for by name must agree with it.

    Args:
        plan: What is asked for now; shard, batch size, `last_batch` and epochs may differ from those of the state.
        state: From `dump_state`, also after a trip through JSON.

    Raises:
        InvalidArgumentError: The state is none, of a newer version, or of another dataset or order; the difference is
            named.
    """
    cursor = _checked(state, holds="order" if isinstance(plan, Plan) else "mixture")
    if state["dataset"] != plan.data_fingerprint:
        raise InvalidArgumentError(
            f"the state was taken over {state['dataset']}, but what is read here is {plan.data_fingerprint}: files "
            "were rewritten, added or removed since, or it is another dataset or filter; read what the state belongs "
            "to, or begin without a state"
        )
    if not isinstance(plan, Plan):
        return _resumed_mixture(plan, state["mixture"], cursor, state.get("taken"))
    if cursor.position > plan.num_rows:
        raise _beyond(cursor, plan)
    order = _agreed_order(plan.request.order, state["order"], chosen=plan.request.chosen)
    return _dealt_anew(plan, order, plan.request.order, cursor), cursor


def resharded(plan: Plan | Mixture, shard: Shard, cursor: Cursor) -> Plan | Mixture:
    """The plan as it goes on for another rank, or for one of another number of ranks.

    Example:
        >>> from petastore.inventory import Inventory
        >>> from petastore.plan.request import ReadRequest
        >>> order = Order(7, True, False, lanes=4, block_rows=1, reshuffle="static", dealt_to=4)
        >>> plan = Plan(Inventory.of_rows([5] * 12), ReadRequest(("id",), order, Shard(0, 4)))
        >>> plan = resharded(plan, Shard(0, 3), Cursor(epoch=1, position=8))
        >>> [plan.order_in(epoch).dealt_to for epoch in (1, 2)]
        [4, 3]
    """
    if not isinstance(plan, Plan) or plan.request.order.dealt_to is None:
        return plan.for_shard(shard)
    asked = dataclasses.replace(plan.request.order, dealt_to=shard.count, lanes=shard.count)
    return _dealt_anew(plan.for_shard(shard), plan.order_in(cursor.epoch), asked, cursor)


def _dealt_anew(plan: Plan, shared: Order, asked: Order, cursor: Cursor) -> Plan:
    """The plan in the order that ranks shared before, whose row groups are dealt anew with the next epoch.

    Args:
        plan: What is asked for now.
        shared: The order until now.
        asked: That which a beginning would have: for how many ranks, and in how many lanes.
        cursor: Where it goes on.
    """
    if shared.dealt_to is None or asked.dealt_to is None:
        return plan.going_on(shared, cursor.epoch)
    own = "lanes" in plan.request.chosen and not shared.shuffle_rows  # they have a lane a rank
    lanes = asked.lanes if own else shared.lanes
    order = dataclasses.replace(shared, dealt_to=asked.dealt_to, lanes=lanes)
    return plan.going_on(order, cursor.epoch, shared if cursor.position else None)


def _with_order(plan: Plan, taken: Mapping[str, Any]) -> Plan:
    order = _agreed_order(plan.request.order, taken, chosen=plan.request.chosen)
    return dataclasses.replace(plan, request=dataclasses.replace(plan.request, order=order))


def _beyond(cursor: Cursor, plan: Plan | Mixture) -> InvalidArgumentError:
    return InvalidArgumentError(f"the state is at position {cursor.position:,} of an epoch of {plan.num_rows:,} rows")


def _resumed_mixture(mixture: Mixture, facts: Mapping[str, Any], cursor: Cursor, taken: Any) -> tuple[Mixture, Cursor]:
    now = mixture.recipe() | {"seed": mixture.seed}
    orders = facts.get("orders")
    if set(facts) != {*now, "rows"} or not isinstance(orders, list) or len(orders) != len(mixture.sources):
        raise InvalidArgumentError(f"{dict(facts)!r:.300} is a damaged or another mixture; it needs {', '.join(now)}")
    for name, value in now.items():
        if name != "orders" and name not in mixture.chosen and facts[name] != value:
            raise _other(name, facts[name], value)
    names = [field.name for field in dataclasses.fields(Order)]
    sources = [
        _with_order(source, dict(zip(names, values, strict=False)))
        for source, values in zip(mixture.sources, orders, strict=True)
    ]
    resumed = dataclasses.replace(mixture, sources=sources, seed=facts["seed"])
    if cursor.epoch > 0 and facts["rows"] != resumed.num_rows:
        raise _other("rows of an epoch", facts["rows"], resumed.num_rows)
    if mixture.stop != "cycle" and cursor.position > resumed.num_rows:
        raise _beyond(cursor, resumed)
    return resumed, _mixed_cursor(resumed, cursor, taken)


def _mixed_cursor(mixture: Mixture, cursor: Cursor, taken: Any) -> Cursor:
    if mixture.batching == "mixed" or cursor.position == 0:
        return cursor
    counts = [count for count in taken if isinstance(count, int) and count >= 0] if isinstance(taken, list) else []
    fits = len(counts) == len(mixture.sources) and sum(counts) == cursor.position
    within = mixture.stop == "cycle" or all(
        count <= rows for count, rows in zip(counts, mixture.rows_per_source, strict=False)
    )
    if not fits or not within:
        raise InvalidArgumentError(f"a damaged state of a reader: {taken!r:.200} are no rows taken of each source")
    return MixedCursor(cursor.epoch, cursor.position, cursor.first_epoch, tuple(counts))


def _checked(state: Mapping[str, Any], *, holds: str) -> Cursor:
    if not isinstance(state, Mapping) or state.get("format") != STATE_FORMAT:
        raise InvalidArgumentError(f"{state!r:.200} is no state of a reader; give what state_dict() returned")
    if state.get("version") != STATE_VERSION:
        raise InvalidArgumentError(
            f"the state is of version {state.get('version')!r}, and this release of petastore reads {STATE_VERSION}"
        )
    place = [state.get(name) for name in ("epoch", "position", "pass")]
    counts = [count for count in place if isinstance(count, int) and not isinstance(count, bool) and count >= 0]
    if not isinstance(state.get(holds), Mapping) and ("mixture" in state) != (holds == "mixture"):
        kinds = ("a single dataset", "a mixture")
        was, now = kinds if holds == "mixture" else kinds[::-1]
        raise InvalidArgumentError(
            f"the state is of {was}, but {now} is read here; read the same, or begin without a state"
        )
    if len(counts) < 3 or not isinstance(state.get(holds), Mapping) or not isinstance(state.get("dataset"), str):
        raise InvalidArgumentError(
            f"{dict(state)!r:.300} is a damaged state of a reader; its dataset, order or place is gone"
        )
    return Cursor(*counts)


def _agreed_order(asked: Order, taken: Mapping[str, Any], *, chosen: frozenset[str]) -> Order:
    values, taken = dataclasses.asdict(asked), {"dealt_to": None, **taken}  # states were written before it was there
    if set(taken) != set(values):
        raise InvalidArgumentError(f"{dict(taken)!r:.300} is a damaged order in a state; it needs {', '.join(values)}")
    for name, value in values.items():
        if name not in chosen and taken[name] != value:
            raise _other(name, taken[name], value)
    return Order(**taken)


def _other(name: str, taken: Any, asked: Any) -> InvalidArgumentError:
    return InvalidArgumentError(f"the state has {name}={taken!r}, but now {name}={asked!r} is asked for; {_WHAT_TO_DO}")
