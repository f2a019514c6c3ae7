"""Options of fsspec's web file system are said to obstore as they are meant; so are addresses, or not at all."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.storage.obstores.web import HttpSettings, http_place, http_settings, http_stores
from petastore.storage.requests.client import UnsuitedError


def test_headers_are_put_together_and_not_shown() -> None:
    settings = http_settings({"headers": {"A": "1"}, "client_kwargs": {"headers": {"A": "0", "B": "Bearer x"}}})
    assert settings is not None
    assert settings.client_options["default_headers"] == {"A": "1", "B": "Bearer x"}
    assert "Bearer" not in repr(settings)
    assert http_settings({"headers": {"A": 1}}) is None


names = st.text(st.characters(exclude_characters="/;", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=9)


@given(st.lists(names.filter(lambda name: name not in (".", "..")), min_size=1, max_size=4))
def test_a_path_that_was_quoted_is_the_one_that_was_meant(parts: list[str]) -> None:
    path = "/".join(parts)
    assert http_place(f"https://host:8443/{quote(path)}") == ("https://host:8443", path)


def test_each_server_has_one_store() -> None:
    stores = http_stores(HttpSettings({"allow_http": True}), timeout_s=3)
    (one, first), (same, second), (other, _) = map(stores, ("http://a/x/1", "http://a/x/2", "http://b/x/1"))
    assert (one is same, one is other, first, second) == (True, False, "x/1", "x/2")
    assert not stores.refused("http://a/x/1", one)


def test_an_address_that_obstore_would_write_in_another_way_is_left_to_others() -> None:
    with pytest.raises(UnsuitedError, match="an address with a query"):
        http_stores(HttpSettings({}), timeout_s=3)("https://host/a?sig=x")


@pytest.mark.parametrize("options", [{"client_kwargs": {"auth": object()}}, {"get_client": print}, {"encoded": True}])
def test_ways_of_the_web_that_obstore_does_not_know(options: dict[str, Any]) -> None:
    assert http_settings(options) is None


@pytest.mark.parametrize(
    "url",
    [
        "https://host/a?sig=x", "https://host/a#b", "https://me:pw@host/a", "https://host/a//b", "https://host/a/../b",
        "https://host/a%2fb", "https://host/", "https://host", "ftp://host/a", "https://host/a;b",
    ],
)  # fmt: skip
def test_addresses_that_obstore_would_write_in_another_way(url: str) -> None:
    assert http_place(url) is None
