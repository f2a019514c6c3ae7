"""A store is made once for each name, and anew when what signs requests is other."""

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from petastore.storage.obstores.credentials import Credentials
from petastore.storage.obstores.kept_stores import KeptStores, of_containers, requested_once


class Made:
    """Makes stores, and knows of which names."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, name: str) -> Any:
        self.names.append(name)
        return object()


def test_threads_that_ask_for_one_name_share_one_store() -> None:
    made = Made()
    kept = KeptStores(made)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(kept, "abababab"))
    assert sorted(made.names) == ["a", "b"]
    assert len(set(map(id, found))) == 2
    kept.forget()
    assert kept("a") is not found[0]


def test_a_path_is_a_container_and_a_key_in_it() -> None:
    stores = of_containers(Made())
    (one, key), (same, other_key), (other, _) = map(stores, ("bucket/a/b", "bucket/c", "tub/a"))
    assert (key, other_key) == ("a/b", "c")
    assert one is same
    assert one is not other
    assert stores("bucket")[1] == ""


def test_who_is_refused_asks_again_where_other_credentials_are_found() -> None:
    found = ["old", "old", "new"]
    stores = of_containers(
        Made(), Credentials(lambda: ({"token": found.pop(0)}, dt.datetime.max.replace(tzinfo=dt.UTC)))
    )
    store, _ = stores("bucket/a")
    assert not stores.refused("bucket/a", store)  # the same ones were found
    assert stores.refused("bucket/a", store)
    assert stores("bucket/a")[0] is not store
    assert found == []


def test_who_was_refused_while_another_thread_found_new_ones_asks_again_too() -> None:
    found = ["old", "new", "new"]
    stores = of_containers(
        Made(), Credentials(lambda: ({"token": found.pop(0)}, dt.datetime.max.replace(tzinfo=dt.UTC)))
    )
    store, _ = stores("bucket/a")
    assert stores.refused("bucket/a", store)
    assert stores.refused("bucket/a", store)


def test_credentials_that_were_given_do_not_change() -> None:
    stores = of_containers(Made())
    assert not stores.refused("bucket/a", stores("bucket/a")[0])


def test_requests_are_made_once_and_end_while_there_is_time_for_another_one() -> None:
    def seconds(timeout_s: float | None) -> list[float]:
        options = requested_once({"allow_http": True}, timeout_s)
        assert options["retry_config"] == {"max_retries": 0}
        assert options["client_options"]["allow_http"] is True
        return [
            options["client_options"][name].total_seconds() for name in ("timeout", "connect_timeout", "read_timeout")
        ]

    assert seconds(8) == [8, 2, 2]
    assert seconds(60) == [60, 10, 15]
    assert seconds(300) == [300, 10, 30]
    assert seconds(None) == [86_400, 10, 30]
