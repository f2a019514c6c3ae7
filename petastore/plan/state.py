"""Reader state: position in a plan, as a small JSON dict for checkpoints. No I/O.

```json
{"format": "petastore.state", "version": 1, "dataset": "5f…",
 "order": {"seed": 7, "shuffle_row_groups": true, "shuffle_rows": true, "lanes": 48, "block_rows": 2000,
           "reshuffle": "epoch"},
 "epoch": 3, "position": 123456, "pass": 0}
```

`pass` is the first epoch of the current iteration over the reader. `position` is the number of rows of the epoch that
all ranks together have consumed. The state does not contain batch size, workers or `last_batch`. It is the same on
every rank, and a run may resume with other values and another number of ranks. If row groups are assigned to ranks,
`dealt_to` in `order` is the number of ranks. After a resume with another number of ranks, the current epoch keeps the
saved assignment, and the next epoch uses the new number of ranks.

Rows may be excluded (`exclude_rows=`, `on_error=`) in the middle of an epoch. Positions that were saved earlier count
rows in the old order, which includes the excluded rows. The remaining rows of the epoch, without the excluded rows,
become a `Selection` and get a new order. Until the end of this epoch, the state contains the dataset and position of
the exclusion (`rest`), and `position` counts only the rows consumed since:

```json
{"dataset": "a0…", "rest": {"dataset": "5f…", "position": 123456}, "position": 640, …}
```

Later epochs have all rows that are not excluded.

The state of a mixture has the key `mixture` instead of `order`, with the order of each source as a list:

```json
{"mixture": {"weights": [3, 1], "stop": "first_exhausted", "batching": "mixed", "orders": [[7, true, …], …],
             "seed": 0, "rows": 5000}}
```

If each batch of a mixture has rows of one source, `taken` is the number of rows of each source that were consumed in
the epoch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast, overload

import numpy as np
from numpy.typing import NDArray

from petastore.errors import InvalidArgumentError
from petastore.plan.cursor import Cursor, MixedCursor
from petastore.plan.order.order import EpochOrder
from petastore.plan.plan import Plan
from petastore.plan.rank_plan import RankPlan
from petastore.plan.request import Order, Rest, Shard, UnderWay
from petastore.plan.selection import Selection

if TYPE_CHECKING:
    from petastore.plan.mixture.mixture import Mixture

__all__ = [
    "STATE_VERSION",
    "check_version",
    "dump_state",
    "plans_with_excluded_rows",
    "resharded",
    "resume",
    "with_rest",
]

STATE_FORMAT = "petastore.state"
STATE_VERSION = 1
"""Version of the state that this release writes, and the only one that it reads."""

_WHAT_TO_DO = "Pass what state_dict() of the same reader returned, or start without a state"


def dump_state(plan: RankPlan, cursor: Cursor) -> dict[str, Any]:
    """Return the state of a plan at a cursor (position) as a new JSON dict.

    Its JSON text has less than 400 bytes, and 60 more for each source of a mixture.

    Example:
        >>> from petastore.inventory import Inventory
        >>> from petastore.plan.request import ReadRequest
        >>> order = Order(seed=7, shuffle_row_groups=True, shuffle_rows=False, lanes=1, block_rows=1)
        >>> plan = Plan(Inventory.of_rows([5]), ReadRequest(("id",), order))
        >>> resume(plan, dump_state(plan, Cursor(0, 3)))[1]
        Cursor(epoch=0, position=3, first_epoch=0)
    """
    if isinstance(plan, Plan):
        order = {"order": plan.order_in(cursor.epoch).as_dict(), **_rest_of(plan, cursor)}
    else:
        mixture = cast("Mixture", plan)
        order = {"mixture": mixture.recipe() | {"seed": mixture.seed, "rows": mixture.num_rows}}
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
def resume(plan: RankPlan, state: Mapping[str, Any]) -> tuple[RankPlan, Cursor]: ...
def resume(plan: RankPlan, state: Mapping[str, Any]) -> tuple[RankPlan, Cursor]:
    """Return the plan and the cursor (position) with which a run resumes from a state.

    Values that the user did not set, such as the seed and the number of lanes, are taken from the state. Values that
    the user set must be equal to those of the state.

    Args:
        plan: Plan requested now; its shard, `last_batch` and epochs may differ from those of the plan that was saved.
        state: State from `dump_state`, also after JSON serialization.

    Raises:
        InvalidArgumentError: The state is invalid, has another version, or belongs to another dataset or order; the
            message names the difference.
    """
    cursor = _checked(state, holds="order" if isinstance(plan, Plan) else "mixture")
    if isinstance(plan, Plan):
        plan = dataclasses.replace(plan, request=dataclasses.replace(plan.request, under_way=None))
        begun = _begun_with_more_rows(plan, state, cursor)
        if begun is not None:
            return begun
    if state["dataset"] != plan.data_fingerprint:
        raise InvalidArgumentError(
            f"the state must belong to the data that is read, {plan.data_fingerprint}, got {state['dataset']}: files "
            "were rewritten, added or removed, or it is another dataset or filter. Open the dataset with which the "
            "state was saved, or start without a state"
        )
    if not isinstance(plan, Plan):
        return _resumed_mixture(cast("Mixture", plan), state["mixture"], cursor, state.get("taken"))
    if cursor.position > plan.num_rows:
        raise _beyond(cursor, plan)
    order = _agreed_order(plan.request.order, state["order"], chosen=plan.request.chosen)
    return _reassigned(plan, order, plan.request.order, cursor), cursor


def _rest_of(plan: Plan, cursor: Cursor) -> dict[str, Any]:
    """Return the entry `rest` of a state, as a dict with this key.

    The dict is empty unless rows were excluded in the middle of the cursor's epoch.
    """
    under_way = plan.request.under_way
    if under_way is None or under_way.rest is None or under_way.epoch != cursor.epoch:
        return {}
    return {"rest": {"dataset": under_way.rest.data_fingerprint, "position": under_way.rest.position}}


def _begun_with_more_rows(plan: Plan, state: Mapping[str, Any], cursor: Cursor) -> tuple[Plan, Cursor] | None:
    """Resume a state whose epoch began before rows were excluded.

    Return the plan and the cursor (position); None for any other state.

    Raises:
        InvalidArgumentError: The epoch began before rows were excluded, but the state belongs to other data.
    """
    rest = state.get("rest")
    if rest is None and state["dataset"] == plan.data_fingerprint:
        return None
    began = {"dataset": state["dataset"], "position": cursor.position} if rest is None else rest
    if rest is None or state["dataset"] == plan.data_fingerprint:
        for wider in plans_with_excluded_rows(plan):
            if isinstance(began, Mapping) and wider.data_fingerprint == began.get("dataset"):
                plain = {name: value for name, value in state.items() if name != "rest"}
                begun, at = resume(wider, {**plain, **began})
                if at.position == 0:
                    order = dataclasses.replace(begun.request, under_way=None)
                    return dataclasses.replace(plan, request=order), at
                after = Cursor(cursor.epoch, 0, cursor.first_epoch) if rest is None else cursor
                resumed = with_rest(plan, begun, at)
                if after.position > resumed.rows_in(cursor.epoch):
                    raise _beyond(after, resumed)
                return resumed, after
    if rest is None:
        return None
    raise InvalidArgumentError(
        f"the state must belong to the data that is read, {plan.data_fingerprint}, with the same excluded rows, got a "
        f"state of {state['dataset']} with rest={rest!r:.200}. Exclude the rows that were excluded when the state was "
        "saved, or start without a state"
    )


def resharded(plan: RankPlan, shard: Shard, cursor: Cursor) -> RankPlan:
    """Return the plan of a resumed run for another rank, or for another number of ranks.

    If the current epoch has begun, the rest of it keeps its row order. If row groups are assigned to ranks
    (`Order.dealt_to`), later epochs assign them to the new number of ranks.

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
    requested = dataclasses.replace(plan.request.order, dealt_to=shard.count, lanes=shard.count)
    return _reassigned(plan.for_shard(shard), plan.order_in(cursor.epoch), requested, cursor)


def _reassigned(plan: Plan, shared: Order, requested: Order, cursor: Cursor) -> Plan:
    """Return the plan with the order of a state.

    If row groups are assigned to ranks, they are assigned to the new number of ranks from the next epoch on.

    Args:
        plan: Plan requested now.
        shared: Order of the state, which all ranks share.
        requested: Order that a new run with the new number of ranks would have.
        cursor: Cursor from which the run resumes.
    """
    if shared.dealt_to is None or requested.dealt_to is None:
        return plan.with_order(shared, cursor.epoch)
    own = "lanes" in plan.request.chosen and not shared.shuffle_rows  # the default without shuffling: one lane per rank
    lanes = requested.lanes if own else shared.lanes
    order = dataclasses.replace(shared, dealt_to=requested.dealt_to, lanes=lanes)
    return plan.with_order(order, cursor.epoch, shared if cursor.position else None)


def _with_order(plan: Plan, taken: Mapping[str, Any]) -> Plan:
    """Return the plan with the order of a state, given as a dict.

    If the user set another value, raise an error.
    """
    order = _agreed_order(plan.request.order, taken, chosen=plan.request.chosen)
    return dataclasses.replace(plan, request=dataclasses.replace(plan.request, order=order))


def _beyond(cursor: Cursor, plan: RankPlan) -> InvalidArgumentError:
    """Return the error for a position that is beyond the end of its epoch."""
    rows = plan.rows_in(cursor.epoch) if isinstance(plan, Plan) else plan.num_rows
    return InvalidArgumentError(
        f"the position in the state must be at most {rows:,}, the rows of an epoch, got {cursor.position:,}. "
        f"{_WHAT_TO_DO}"
    )


def _resumed_mixture(mixture: Mixture, facts: Mapping[str, Any], cursor: Cursor, taken: Any) -> tuple[Mixture, Cursor]:
    """Return the mixture and the cursor with which a run resumes from a state.

    Args:
        mixture: Mixture requested now.
        facts: Value `mixture` of the state.
        cursor: Cursor of the state.
        taken: Value `taken` of the state, or None.
    """
    now = mixture.recipe() | {"seed": mixture.seed}
    orders = facts.get("orders")
    if set(facts) != {*now, "rows"} or not isinstance(orders, list) or len(orders) != len(mixture.sources):
        raise InvalidArgumentError(
            f"the state must be of a mixture of {len(mixture.sources)} sources, with {', '.join(now)}, got "
            f"{dict(facts)!r:.300}. {_WHAT_TO_DO}"
        )
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
    """Return the cursor with the number of consumed rows of each source, if needed.

    It is needed inside an epoch, if each batch has rows of one source. `taken` is the value in the state.
    """
    if mixture.batching == "mixed" or cursor.position == 0:
        return cursor
    counts = [count for count in taken if isinstance(count, int) and count >= 0] if isinstance(taken, list) else []
    fits = len(counts) == len(mixture.sources) and sum(counts) == cursor.position
    within = mixture.stop == "cycle" or all(
        count <= rows for count, rows in zip(counts, mixture.rows_per_source, strict=False)
    )
    if not fits or not within:
        raise InvalidArgumentError(
            f"the state is damaged: it must have the number of rows read from each source, got {taken!r:.200}. "
            f"{_WHAT_TO_DO}"
        )
    return MixedCursor(cursor.epoch, cursor.position, cursor.first_epoch, tuple(counts))


def check_version(state: Mapping[str, Any], version: int) -> None:
    """Raise an error if a state has another version than the one that this release reads."""
    if state.get("version") != version:
        raise InvalidArgumentError(
            f"the state must be of version {version}, which this release reads, got {state.get('version')!r}. Use the "
            "release of petastore that saved the state, or start without a state"
        )


def _checked(state: Mapping[str, Any], *, holds: str) -> Cursor:
    """Check the format, version and types of a state, and return its cursor.

    `holds` is the key that the state must have: `"order"` or `"mixture"`.
    """
    if not isinstance(state, Mapping) or state.get("format") != STATE_FORMAT:
        raise InvalidArgumentError(f"state must be what state_dict() returned, got {state!r:.200}")
    check_version(state, STATE_VERSION)
    place = [state.get(name) for name in ("epoch", "position", "pass")]
    counts = [count for count in place if isinstance(count, int) and not isinstance(count, bool) and count >= 0]
    if not isinstance(state.get(holds), Mapping) and ("mixture" in state) != (holds == "mixture"):
        kinds = ("a single dataset", "a mixture")
        was, now = kinds if holds == "mixture" else kinds[::-1]
        raise InvalidArgumentError(
            f"the state must be of {now}, which is read now, got a state of {was}. Read the same data, or start "
            "without a state"
        )
    if len(counts) < 3 or not isinstance(state.get(holds), Mapping) or not isinstance(state.get("dataset"), str):
        raise InvalidArgumentError(
            f"the state must have the dataset, the order and the position, got {dict(state)!r:.300}. {_WHAT_TO_DO}"
        )
    return Cursor(*counts)


def _agreed_order(requested: Order, taken: Mapping[str, Any], *, chosen: frozenset[str]) -> Order:
    """Return the order of a state; raise an error if the user set another value.

    Args:
        requested: Order requested now.
        taken: Order of the state, as a dict.
        chosen: Names of the values that the user did not set.
    """
    values, taken = dataclasses.asdict(requested), {"dealt_to": None, **taken}  # a state omits the key if it is None
    if set(taken) != set(values):
        raise InvalidArgumentError(
            f"the order in the state must have {', '.join(values)}, got {dict(taken)!r:.300}. {_WHAT_TO_DO}"
        )
    for name, value in values.items():
        if name not in chosen and taken[name] != value:
            raise _other(name, taken[name], value)
    return Order(**taken)


def _other(name: str, taken: Any, requested: Any) -> InvalidArgumentError:
    """Return the error for a value in the state that differs from a value of the user."""
    return InvalidArgumentError(
        f"{name} must be {taken!r}, as in the state, got {requested!r}. Pass the same value, or start without a state"
    )


_AT_ONCE = 2**20
"""Number of rows of an epoch that are looked up at a time."""


def plans_with_excluded_rows(plan: Plan) -> Iterator[Plan]:
    """Yield the plan as it was before each exclusion of rows, newest exclusion first."""
    selection = plan.selection
    while selection is not None and selection.before is not None:
        selection = selection.before
        is_whole = np.array_equal(selection.counts, plan.inventory.rows)
        request = dataclasses.replace(plan.request, under_way=None)
        yield dataclasses.replace(plan, request=request, selection=None if is_whole else selection)


def with_rest(plan: Plan, begun: Plan, cursor: Cursor) -> Plan:
    """Return a plan that finishes the current epoch after rows were excluded.

    Args:
        plan: Plan of the later epochs, without the excluded rows.
        begun: Plan with which the epoch began; it includes the excluded rows.
        cursor: Position in `begun`, inside an epoch.
    """
    order = begun.order_in(cursor.epoch)
    left = _rows_left(begun, cursor)
    if plan.selection is not None:
        excluded = {group: ~_flags(plan, group) for group in np.flatnonzero(left.counts).tolist()}
        left = left.without(excluded, plan.inventory.rows, by="excluded rows")
    left = dataclasses.replace(left, before=None)
    rest = UnderWay(cursor.epoch, order, Rest(left, begun.data_fingerprint, cursor.position))
    request = dataclasses.replace(plan.request, order=begun.request.order, under_way=rest)
    return dataclasses.replace(plan, request=request)


def _rows_left(plan: Plan, cursor: Cursor) -> Selection:
    """Return the rows that all ranks read after a cursor, until the end of its epoch."""
    order = EpochOrder(plan.rows, plan.order_in(cursor.epoch), cursor.epoch)
    flags: dict[int, NDArray[np.bool_]] = {}
    for first in range(cursor.position, plan.num_rows, _AT_ONCE):
        # `by_lane` is faster than `rows_at` here, because all rows of each shuffled block are needed.
        groups, rows = order.by_lane(np.arange(first, min(first + _AT_ONCE, plan.num_rows))).in_order()
        if plan.selection is not None:
            rows = plan.selection.rows_at(groups, rows)
        by_group = np.argsort(groups, kind="stable")
        runs = np.flatnonzero(np.diff(groups[by_group], prepend=-1))
        for of_group in np.split(by_group, runs[1:]):
            group = int(groups[of_group[0]])
            flags.setdefault(group, np.zeros(plan.inventory.rows[group], np.bool_))[rows[of_group]] = True
    return Selection.of_flags(sorted(flags.items()), plan.inventory.rows)


def _flags(plan: Plan, group: int) -> NDArray[np.bool_]:
    """Return a mask of the rows of a row group that the plan selects, shape (rows,)."""
    rows = int(plan.inventory.rows[group])
    if plan.selection is None:
        return np.ones(rows, np.bool_)
    return plan.selection.bitmaps.get(group, np.full(rows, plan.selection.counts[group] > 0))
