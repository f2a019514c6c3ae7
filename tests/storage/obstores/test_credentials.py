"""Credentials are asked for anew before they end, in the thread that makes a request, and shown to nobody."""

from __future__ import annotations

import datetime as dt
import types
from typing import Any

import pytest

from petastore.storage.obstores.azure import azure_settings, azure_stores
from petastore.storage.obstores.credentials import Credentials
from petastore.storage.obstores.google import google_settings, google_stores

TOKEN = "to" + "ken-0123456789"


def ends_in(minutes: float) -> dt.datetime:
    return dt.datetime.now(dt.UTC) + dt.timedelta(minutes=minutes)


def test_credentials_that_last_are_looked_for_once() -> None:
    found = iter(["one"])
    credentials = Credentials(lambda: ({"token": next(found)}, ends_in(60)))
    for _ in range(3):
        credentials.look_again()
    assert next(iter(credentials().values())) == "one"
    assert "one" not in repr(credentials)


def test_credentials_that_end_soon_are_looked_for_before_each_request() -> None:
    found = iter(["one", "two"])
    credentials = Credentials(lambda: ({"token": next(found)}, ends_in(3)))
    credentials.look_again()
    assert next(iter(credentials().values())) == "one"
    credentials.look_again()
    assert next(iter(credentials().values())) == "two"


def test_credentials_whose_end_is_not_known_are_looked_for_again_after_some_time() -> None:
    credentials = Credentials(lambda: ({"token": "one"}, None))
    credentials.look_again()
    assert ends_in(9) < credentials()["expires_at"] < ends_in(11)


def test_whoever_is_refused_finds_out_whether_there_are_other_ones() -> None:
    found = iter(["one", "one", "two"])
    credentials = Credentials(lambda: ({"token": next(found)}, ends_in(60)))
    credentials.look_again()
    assert [credentials.look_anew() for _ in range(2)] == [False, True]
    assert next(iter(credentials().values())) == "two"


def test_what_goes_wrong_is_raised_as_it_is_before_obstore_sees_it() -> None:
    def refresh() -> None:
        raise PermissionError("the key is of no use")

    found = types.SimpleNamespace(credentials=types.SimpleNamespace(token=TOKEN, expiry=None), maybe_refresh=refresh)
    settings = google_settings({}, "http://127.0.0.1:1")
    assert settings is not None
    with pytest.raises(PermissionError, match="the key is of no use"):
        google_stores(settings, 3.0, found)("bucket/a")


def test_tokens_of_google_and_azure_come_from_what_their_file_systems_found() -> None:
    expiry = dt.datetime(2050, 1, 1)  # noqa: DTZ001 - as google-auth has it
    found = types.SimpleNamespace(credentials=types.SimpleNamespace(token=TOKEN, expiry=expiry), maybe_refresh=list)
    settings = google_settings({}, "http://127.0.0.1:1")
    assert settings is not None
    store, path = google_stores(settings, 3.0, found)("bucket/a/b")
    assert path == "a/b"
    assert store.credential_provider()["token"] == TOKEN
    assert store.credential_provider()["expires_at"] == dt.datetime(2050, 1, 1, tzinfo=dt.UTC)
    assert TOKEN not in repr(store) + repr(store.config)

    asked: list[Any] = []

    class Tokens:
        def get_token(self, scope: str) -> str:
            asked.append(scope)
            return "to be waited for"

    def wait_for(found: Any) -> Any:
        assert found == "to be waited for"
        return types.SimpleNamespace(token=TOKEN, expires_on=2_524_608_000)

    place = types.SimpleNamespace(account_name="me", account_url="https://me.host", credential=Tokens())
    blobs = azure_settings({}, place)
    assert blobs is not None
    store, _ = azure_stores(blobs, 3.0, wait_for)("container/a")
    assert store.credential_provider()["token"] == TOKEN
    assert asked == ["https://storage.azure.com/.default"]
    assert TOKEN not in repr(store) + repr(store.config)
