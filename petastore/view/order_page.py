"""Order page: simulate the order of an epoch for the settings that the user types.

The page shows figures, a chart, and Python code to copy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from petastore.byte_sizes import byte_size
from petastore.dataset import Dataset
from petastore.errors import InvalidArgumentError
from petastore.expressions import Expression
from petastore.expressions.text import parse_filter_text
from petastore.plan.plan import Plan
from petastore.plan.report.explanation import CostModel, Explanation
from petastore.plan.request import DEFAULT_SHUFFLE_BUFFER_BYTES, OrderKwargs, Shard
from petastore.readers.fetches import column_bytes, fetches_of
from petastore.selecting.filter import filter_row_groups
from petastore.view.cells import feeds_image
from petastore.work.pools import Workers

__all__ = ["BOXES", "DEFAULTS", "Simulation", "simulate"]

DEFAULTS = {
    "columns": "", "filter": "", "batch_size": "256", "shard_count": "1", "cur_shard": "0", "seed": "0",
    "shuffle_rows": "on", "shuffle_row_groups": "on", "interleave": "",
    "shuffle_buffer_bytes": f"{DEFAULT_SHUFFLE_BUFFER_BYTES // 2**20}MiB",
    "shuffle_block_rows": "", "last_batch": "even", "requests": "", "cache_bytes": "", "price_per_request": "0.0000004",
    "price_per_gb": "0",
}  # fmt: skip
"""Initial values of the form; the price is that of a GET request to S3."""

BOXES = frozenset(["shuffle_rows", "shuffle_row_groups", "requests"])
"""Settings of the form that are check boxes."""

_MOST_GLOBAL_BATCH = 1_000_000
_MOST_FEEDS = 20_000
"""Maximum number of batches times ranks in the image; more would take seconds to draw."""


@dataclasses.dataclass(frozen=True, slots=True)
class Simulation:
    """Result of a simulated order."""

    explanation: str
    """Description of the order (steps, bytes, memory), as `plan.explain` returns it."""
    feeds: str
    """PNG as a data URI; empty if there are too many ranks to draw."""
    batches: str
    """Text that says which batches the image shows."""
    code: str
    """Python code that opens a reader with these settings."""


def simulate(dataset: Dataset, form: Mapping[str, str]) -> Simulation:
    """Simulate the order of an epoch, for the settings that the user typed.

    Rows are read only if a filter is typed.

    Args:
        dataset: The dataset.
        form: Values as typed, with the keys of `DEFAULTS`.

    Raises:
        PetastoreError: A setting is invalid, or a footer cannot be read.
    """
    batch_size, shard_count = _number(form, "batch_size") or 1, _number(form, "shard_count") or 1
    if batch_size * shard_count > _MOST_GLOBAL_BATCH:
        raise InvalidArgumentError(
            f"batch_size times shard_count must be at most {_MOST_GLOBAL_BATCH:,} here, got "
            f"{batch_size * shard_count:,}"
        )
    filters = parse_filter_text(form["filter"]) if form["filter"].strip() else None
    settings = OrderKwargs(
        seed=_number(form, "seed"),
        shuffle_rows=bool(form["shuffle_rows"]),
        shuffle_row_groups=bool(form["shuffle_row_groups"]),
        shuffle_buffer_bytes=form["shuffle_buffer_bytes"].strip() or DEFAULTS["shuffle_buffer_bytes"],
        interleave=_number(form, "interleave"),
        shuffle_block_rows=_number(form, "shuffle_block_rows"),
    )
    shard = Shard(_number(form, "cur_shard") or 0, shard_count)
    last_batch: Any = form["last_batch"]
    every = np.ones(dataset.inventory.num_row_groups, np.bool_)
    plan = dataset.plan(
        columns=[form["columns"]] if form["columns"].strip() else None,
        shard=shard,
        last_batch=last_batch,
        selection=None if filters is None else filter_row_groups(dataset, filters, every, Workers()),
        **settings,
    )
    explanation = _explained(dataset, plan, batch_size, form)
    has_image = explanation.ranks * min(explanation.steps, 200) <= _MOST_FEEDS
    feeds = plan.feeds(batch_size) if has_image else None
    shown = (
        "too many ranks to draw"
        if feeds is None
        else f"{len(feeds.sampled_batches):,} of {feeds.num_batches:,} batches"
    )
    code = _code(dataset, plan, settings, filters, form, batch_size)
    return Simulation(str(explanation), "" if feeds is None else feeds_image(feeds), shown, code)


def _explained(dataset: Dataset, plan: Plan, batch_size: int, form: Mapping[str, str]) -> Explanation:
    if not form["requests"]:
        return plan.explain(batch_size)
    columns = plan.request.columns
    storage = CostModel(
        fetches_of(dataset, columns),
        cache_bytes=byte_size(form["cache_bytes"], name="cache_bytes") if form["cache_bytes"].strip() else None,
        price_per_request=_price(form, "price_per_request"),
        price_per_gb=_price(form, "price_per_gb"),
    )
    explained = plan.explain(batch_size, column_bytes=column_bytes(dataset, columns), storage=storage)
    # The cost is that of two epochs, because only the second shows what a cache saves.
    more = dataclasses.replace(plan, request=dataclasses.replace(plan.request, epochs=2))
    return dataclasses.replace(explained, cost=more.explain(batch_size, storage=storage).cost)


def _code(
    dataset: Dataset,
    plan: Plan,
    settings: OrderKwargs,
    filters: Expression | None,
    form: Mapping[str, str],
    batch_size: int,
) -> str:
    arguments = [repr(dataset.url)]
    if form["columns"].strip():
        arguments.append(f"schema_fields=[{form['columns']!r}]")
    if filters is not None:
        arguments.append(f"filters={filters!r}")
    shard = plan.request.shard
    if shard.count > 1:
        arguments += [f"cur_shard={shard.index}", f"shard_count={shard.count}"]
    arguments += [f"{name}={value!r}" for name, value in settings.items() if value is not None]
    arguments.append(f"last_batch={form['last_batch']!r}")
    inside = "".join(f"    {argument},\n" for argument in arguments)
    needs_numpy, needs_decimal = "np." in repr(filters), "Decimal(" in repr(filters)
    imports = ("from decimal import Decimal\n" if needs_decimal else "") + (
        "import numpy as np\n" if needs_numpy else ""
    )
    return (
        f"{imports}from petastore import {'' if filters is None else 'col, '}make_reader\n\n"
        f"with make_reader(\n{inside}) as reader:\n"
        f"    for batch in reader.iter_batches({batch_size}):\n        ...\n"
    )


def _number(form: Mapping[str, str], name: str) -> int | None:
    text = form[name].strip()
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise InvalidArgumentError(f"{name} must be an integer, got {text[:80]!r}") from None


def _price(form: Mapping[str, str], name: str) -> float:
    try:
        return float(form[name].strip() or 0)
    except ValueError:
        raise InvalidArgumentError(f"{name} must be a number, got {form[name][:80]!r}") from None
