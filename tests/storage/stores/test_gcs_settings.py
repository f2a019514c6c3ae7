"""Tests of converting gcsfs options to obstore settings."""

from __future__ import annotations

import datetime as dt
import types
from pathlib import Path
from typing import Any

import pytest

from petastore.errors import InvalidArgumentError
from petastore.storage.stores.cloud_settings import gcs_settings
from petastore.storage.stores.store_settings import StoreSettings, request_limits


def store_of(settings: StoreSettings) -> Any:
    limits = request_limits(3)
    limits["client_options"] |= settings.client_options
    return settings.make_store("bucket", limits, None)


def test_gcs_endpoint_comes_from_options_or_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = gcs_settings({"token": "anon", "project": "p", "endpoint_url": "http://h:1/", "consistency": "md5"})
    assert (settings.server, settings.is_anonymous) == (("gs", "http://h:1"), True)
    assert dict(settings.client_options) == {"allow_http": True}
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "h:2")
    assert gcs_settings({}).server == ("gs", "http://h:2")


def test_gcs_requester_pays_is_sent_as_a_header() -> None:
    for options in ({"requester_pays": "p"}, {"requester_pays": True, "project": "p"}):
        settings = gcs_settings({"token": "anon", **options})
        assert settings.client_options["default_headers"] == {"x-goog-user-project": "p"}


def test_gcs_token_or_credentials_are_passed_as_a_function() -> None:
    settings = gcs_settings({"token": "ya29.hushhush"})
    store = store_of(settings)
    assert store.credential_provider() == {"token": "ya29.hushhush", "expires_at": None}
    shown = repr(settings) + repr(store) + repr(store.config)
    credentials = types.SimpleNamespace(
        token="hush-token",  # noqa: S106 - it is none
        expiry=dt.datetime(2050, 1, 1),  # noqa: DTZ001 - as google-auth has it
        valid=True,
        refresh=lambda _: None,
    )
    store = store_of(gcs_settings({"token": credentials}))
    assert store.credential_provider()["token"] == "hush-token"  # noqa: S105 - it is none
    assert store.credential_provider()["expires_at"] == dt.datetime(2050, 1, 1, tzinfo=dt.UTC)
    assert "hush" not in shown + repr(store) + repr(store.config)


def test_gcs_token_file_is_passed_as_the_credentials_path(tmp_path: Path) -> None:
    (tmp_path / "key.json").write_text('{"type": "authorized_user"}')
    settings = gcs_settings({"token": str(tmp_path / "key.json")})
    assert not settings.is_anonymous


@pytest.mark.parametrize(
    "options",
    [{"version_aware": True}, {"session_kwargs": {"trust_env": True}}, {"something": "new"}, {"token": "browser"}],
)
def test_gcs_options_unknown_to_obstore_raise(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"storage_options of gs:// must be .*filesystem=gcsfs"):
        gcs_settings(options)
