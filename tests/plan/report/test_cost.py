"""Tests of estimated storage cost: requests, bytes, cache hits and money, compared with values computed by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

from petastore.errors import InvalidArgumentError
from petastore.inventory import Inventory
from petastore.plan import Order, Plan, ReadRequest, Shard
from petastore.plan.report.explanation import CostModel, Fetches, cost_of


def fetches(groups: int) -> Fetches:
    one = np.ones(groups, np.int64)
    return Fetches(one, 100 * one, 2 * one, 8192 * one, np.arange(groups, dtype=np.int32) // 4, one[::4], 10 * one[::4])


@pytest.mark.parametrize("groups", [64, 10_000])
def test_estimated_cost_with_a_cache_of_half_the_data_has_half_cache_hits(groups: int) -> None:
    order = np.random.RandomState(0).permutation(groups)
    asked = CostModel(fetches(groups), cache_bytes=groups // 2 * 8192)
    first, second, third = cost_of([order] * 3, asked).epochs
    assert (first.hits, first.requests) == (0, groups + groups // 4)
    for epoch in (second, third):
        assert 0.48 * epoch.entries <= epoch.hits <= 0.5 * epoch.entries
        assert epoch.bytes == 100 * epoch.requests == 100 * (groups - epoch.hits // 2)


def test_estimated_cost_counts_the_footer_request_once_per_file() -> None:
    first, second = cost_of([np.array([0, 1]), np.array([1, 4])], CostModel(fetches(8))).epochs
    assert (first.requests, second.requests) == (2 + 1, 2 + 1)


def test_explain_includes_the_storage_cost_if_requested() -> None:
    order = Order(7, True, False, 2, 1, "static", 2)
    plan = Plan(Inventory.of_rows([10] * 8), ReadRequest(("id",), order, Shard(1, 2), epochs=None))
    asked = CostModel(fetches(8), cache_bytes=1 << 20, price_per_request=0.001, price_per_gb=0.09)
    explained = plan.explain(5, storage=asked)
    assert explained.cost is not None
    assert "cost" not in plan.explain(5).as_dict()
    facts = json.loads(json.dumps(explained.as_dict()))["cost"]["epochs"]
    assert [epoch["hits"] for epoch in facts] == [0, 8]
    assert facts[1] == {"requests": 0, "bytes": 0, "entries": 8, "hits": 8, "money": 0}
    lines = str(explained).splitlines()[-2:]
    assert "row groups shuffled, each of 2 ranks has the same row groups in every epoch, seed 7" in str(explained)
    assert lines[0].startswith("requests    by rank 1; epoch 0: ")
    assert lines[1] == "            epoch 1: 0 requests, 0 B, 8 of 8 entries from the cache, cost 0"


def test_estimated_cost_covers_no_more_epochs_than_the_plan_has() -> None:
    order = Order(7, True, False, 1, 1)
    plan = Plan(Inventory.of_rows([10] * 8), ReadRequest(("id",), order))
    cost = plan.explain(5, storage=CostModel(fetches(8), epochs=5)).cost
    assert cost is not None
    assert len(cost.epochs) == 1
    assert cost.epochs[0].requests == 8 + 2


def test_cost_invalid_arguments_raise() -> None:
    with pytest.raises(InvalidArgumentError, match="price_per_gb"):
        CostModel(fetches(4), price_per_gb=-1)
    with pytest.raises(InvalidArgumentError, match="epochs"):
        CostModel(fetches(4), epochs=0)
    expected = "fetches must cover all row groups of the plan, got 4 row groups where the plan reads row group 4"
    with pytest.raises(InvalidArgumentError, match=expected):
        cost_of([np.array([4])], CostModel(fetches(4)))
