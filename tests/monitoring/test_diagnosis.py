"""Tests of bottleneck diagnosis from counters: the slowest stage, the first remedy and slow ranks."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from petastore.errors import InvalidArgumentError
from petastore.monitoring.diagnosis import Counters, compare_ranks, diagnose


def counters(**given: Any) -> Counters:
    waits = sum(seconds for name, seconds in given.items() if name.startswith("wait_"))
    return Counters(**{"elapsed_seconds": 10.0, "wait_seconds": waits, **given})


STAGES = ["storage", "decoding", "transform", "assembly", "copy"]


@pytest.mark.parametrize("stage", STAGES)
def test_bottleneck_is_the_stage_with_the_longest_wait(stage: str) -> None:
    waits = {f"wait_{name}_seconds": 0.5 for name in STAGES} | {f"wait_{stage}_seconds": 4.0}
    found = diagnose(counters(**waits))
    assert found.bottleneck == stage
    assert found.wait_share == pytest.approx(0.6)
    assert found.shares[stage] == pytest.approx(0.4)
    assert sum(found.shares.values()) == pytest.approx(found.wait_share)
    name = "host-to-device copy" if stage == "copy" else stage
    assert str(found).startswith(
        f"The input is the bottleneck: training waited 60 % of the time for data ({name} 40 %,"
    )
    assert found.remedies
    assert str(found).endswith(f"Change: {', or '.join(found.remedies)}.")


@pytest.mark.parametrize(("waited", "is_input"), [(0.49, False), (0.51, True)])
def test_input_is_not_the_bottleneck_below_five_percent_waiting(waited: float, is_input: bool) -> None:
    found = diagnose(counters(wait_storage_seconds=waited))
    assert (found.bottleneck is not None) is is_input
    assert bool(found.remedies) is is_input


def test_waiting_time_without_a_known_stage_is_diagnosed_as_other() -> None:
    found = diagnose(Counters(elapsed_seconds=10, wait_seconds=5, wait_decoding_seconds=1))
    assert found.bottleneck == "other"
    assert found.shares["other"] == pytest.approx(0.4)


def test_diagnosis_before_first_batch_reports_that_nothing_was_measured() -> None:
    assert str(diagnose(Counters())) == "Nothing was measured yet: iterate over the reader first."


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ({"wait_storage_seconds": 5, "is_remote": True}, 'cache_type="local-disk"'),
        ({"wait_storage_seconds": 5, "is_remote": True, "is_cached": True}, "workers_count"),
        ({"wait_storage_seconds": 5}, "faster disk"),
        ({"wait_decoding_seconds": 5, "workers": 1, "cpus": 4}, "workers_count above 1"),
        ({"wait_decoding_seconds": 5, "workers": 4, "cpus": 4}, "schema_fields"),
        ({"wait_transform_seconds": 5}, "takes='columns'"),
        ({"wait_assembly_seconds": 5, "pool": "dummy"}, 'reader_pool_type="thread"'),
        ({"wait_storage_seconds": 5, "memory_budget": 1, "workers": 2, "spans_ahead": 1}, "memory_budget"),
        ({"wait_storage_seconds": 5, "rows": 10, "rows_released": 30, "rows_selected": 10, "rows_of_dataset": 10},
         "shuffle_buffer_bytes, since each row is loaded 3.0 times"),
        ({"wait_decoding_seconds": 5, "rows": 10, "rows_released": 300, "rows_selected": 10, "rows_of_dataset": 300},
         "sorted by the filter's column"),
    ],
)  # fmt: skip
def test_first_remedy_of_a_diagnosis_names_the_parameter_to_change(given: dict[str, Any], remedy: str) -> None:
    assert remedy in diagnose(counters(**given)).remedies[0]


def test_diagnosis_names_a_file_only_if_it_is_much_slower_than_the_median() -> None:
    given = {"wait_storage_seconds": 5, "slowest_file": "b.parquet", "median_file_seconds": 0.1}
    assert "b.parquet, 900.0 ms per row group (median 100.0 ms)" in str(
        diagnose(counters(**given, slowest_file_seconds=0.9))
    )
    assert "b.parquet" not in str(diagnose(counters(**given, slowest_file_seconds=0.2)))


def test_compare_ranks_accepts_counters_after_a_json_round_trip() -> None:
    of_ranks = [counters(rank=rank, ranks=4, wait_storage_seconds=6.0 if rank == 2 else 0.1) for rank in range(4)]
    sent = json.loads(json.dumps([dataclasses.asdict(one) for one in of_ranks]))
    compared = compare_ranks(sent[::-1])
    assert compared.slow_rank == 2
    assert compared.diagnoses == tuple(map(diagnose, of_ranks))
    assert str(compared).startswith(
        "Rank 2 is slow: its input took 60 % of the time, and the input of the median rank 1 %."
    )


def test_compare_ranks_finds_no_slow_rank_if_all_wait_equally() -> None:
    compared = compare_ranks([diagnose(counters(rank=rank, wait_storage_seconds=6.0)) for rank in range(4)])
    assert compared.slow_rank is None
    assert str(compared).startswith("No rank is slow. On rank 0: The input is the bottleneck")


@pytest.mark.parametrize("given", [[], [diagnose(Counters()), diagnose(Counters())]])
def test_compare_ranks_rejects_missing_and_repeated_ranks(given: list[Any]) -> None:
    with pytest.raises(InvalidArgumentError, match="diagnoses must have one diagnosis per rank, got ranks"):
        compare_ranks(given)


def test_counters_since_an_earlier_iteration_start_at_zero() -> None:
    before, later = counters(rows=10, wait_storage_seconds=5), counters(rows=4, wait_storage_seconds=1)
    assert later.since(before) == later
