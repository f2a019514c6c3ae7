"""Tests of the settings that tuning tries: chosen by the bottleneck, and none of them changes the rows."""

from __future__ import annotations

from typing import Any

from petastore.monitoring.diagnosis import Counters, Diagnosis, diagnose
from petastore.tuning.race import code_of, described, settings_to_try


def probe(cpus: int, *, storage: float = 0.0, is_remote: bool = False) -> Diagnosis:
    """Return the diagnosis of a reader with one worker per CPU that waits for storage in a part of the time."""
    waits = {"elapsed_seconds": 1.0, "wait_seconds": 1.0, "wait_storage_seconds": storage}
    return diagnose(Counters(**waits, workers=cpus, cpus=cpus, is_remote=is_remote))  # type: ignore[arg-type]


def tried(given: Any, of: Diagnosis) -> list[Any]:
    return list(settings_to_try(given, of))


def test_tuning_settings_begin_with_the_users_and_then_vary_workers_count() -> None:
    assert tried({}, probe(4)) == [{}, *({"workers_count": count} for count in (1, 2, 3, 6, 8))]
    assert tried({"workers_count": 2}, probe(2)) == [{}, *({"workers_count": count} for count in (1, 3, 4, 6, 8))]


def test_tuning_adds_workers_and_a_disk_cache_for_slow_remote_storage() -> None:
    counts = (1, 3, 4, 6, 8, 12, 16)
    plain = [{}, *({"workers_count": count} for count in counts)]
    assert tried({}, probe(2, storage=0.04, is_remote=True)) == plain[:6]
    assert tried({"cache_type": "local-disk"}, probe(2, storage=0.4, is_remote=True)) == plain
    cached = tried({}, probe(2, storage=0.4, is_remote=True))[len(plain) :]
    assert {"cache_type": "local-disk"} in cached
    assert {"workers_count": 1, "cache_type": "local-disk"} in cached
    assert len(cached) == len(plain)


def test_tuning_settings_include_process_pools_only_with_a_transform() -> None:
    pools = [one.get("reader_pool_type") for one in tried({"transform_spec": print}, probe(2))]
    assert pools == [None] * 6 + ["process"] * 6
    assert {"reader_pool_type": "process", "workers_count": 2} in tried({"transform_spec": print}, probe(2))


def test_tuned_code_shows_variables_instead_of_objects_and_secrets() -> None:
    assert code_of(None, {"storage_options": {"secret": "hush"}}) == (
        "make_reader(\n    dataset_url,\n    storage_options=storage_options,\n)"
    )
    found = code_of("a'b", {"schema_fields": ["x"], "filters": [("x", ">", 1.5)], "transform_spec": object()})
    assert found == (
        "make_reader(\n    \"a'b\",\n    schema_fields=['x'],\n    filters=[('x', '>', 1.5)],\n"
        "    transform_spec=transform_spec,\n)"
    )
    compile(found, "code", "eval")
    assert described({"cache_type": "local-disk"}) == 'cache_type="local-disk"'
