"""Tests of converting options of fsspec's HTTP filesystem, and URLs, to obstore settings."""

from __future__ import annotations

import base64
import types
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.errors import InvalidArgumentError
from petastore.storage.stores.store_settings import http_settings, linked_addresses, server_and_key


def test_http_headers_are_merged_and_not_shown() -> None:
    settings = http_settings({"headers": {"A": "1"}, "client_kwargs": {"headers": {"A": "0", "B": "Bearer x"}}})
    assert settings.client_options["default_headers"] == {"A": "1", "B": "Bearer x"}
    assert "Bearer" not in repr(settings)
    with pytest.raises(InvalidArgumentError, match="headers whose names and values are text"):
        http_settings({"headers": {"A": 1}})


def test_http_user_and_password_become_a_header() -> None:
    auth = types.SimpleNamespace(login="me", password="p@w")  # noqa: S106 - it is none
    settings = http_settings({"client_kwargs": {"auth": auth}})
    sent = base64.b64encode(b"me:p@w").decode()
    assert settings.client_options["default_headers"] == {"Authorization": f"Basic {sent}"}


names = st.text(st.characters(exclude_characters="/;", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=9)


@given(st.lists(names.filter(lambda name: name not in (".", "..")), min_size=1, max_size=4))
def test_http_url_is_split_into_server_and_unquoted_path(parts: list[str]) -> None:
    path = "/".join(parts)
    assert server_and_key(f"https://host:8443/{quote(path)}") == ("https://host:8443", path)


@pytest.mark.parametrize("options", [{"get_client": print}, {"something": "new"}])
def test_http_options_unknown_to_obstore_raise(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match="that obstore knows"):
        http_settings(options)


@pytest.mark.parametrize(
    "url",
    [
        "https://host/a?sig=x", "https://host/a#b", "https://me:pw@host/a", "https://host/a//b", "https://host/a/../b",
        "https://host/a%2fb", "https://host/", "https://host", "https://host/a;b",
    ],
)  # fmt: skip
def test_http_urls_are_sent_unchanged(url: str) -> None:
    assert server_and_key(url) == (url, "")


def test_http_listing_uses_only_links_below_the_index_page() -> None:
    page = b"""<a class="x" href='a%20b.parquet'>a</a><A HREF="/data/c.parquet?x=1">c</A><a href="deep/er/x">x</a>
        <a href="http://other/d.parquet">d</a><a href="?C=N">sort</a><a href="../">up</a>"""
    assert linked_addresses("http://host/data/", page) == [
        "http://host/data/a%20b.parquet", "http://host/data/c.parquet",
    ]  # fmt: skip
