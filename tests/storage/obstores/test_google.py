"""Options of gcsfs are said to obstore as they are meant, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from petastore.storage.obstores.google import google_settings


@pytest.mark.parametrize(
    ("options", "endpoint", "config", "client"),
    [
        ({}, "https://storage.googleapis.com", {"base_url": "https://storage.googleapis.com"}, {}),
        ({"endpoint_url": "http://h:1/"}, "http://h:1/", {"base_url": "http://h:1"}, {"allow_http": True}),
        ({"project": "p", "token": {"private_key": "hush"}, "consistency": "md5", "timeout": 3}, None, {}, {}),
        ({"requester_pays": False, "version_aware": False, "session_kwargs": {}}, None, {}, {}),
    ],
)
def test_what_google_is_told(options: dict[str, Any], endpoint: str | None, config: Any, client: Any) -> None:
    settings = google_settings(options, endpoint)
    assert settings is not None
    assert (dict(settings.config), dict(settings.client_options)) == (config, client)
    assert "hush" not in repr(settings)


@pytest.mark.parametrize(
    "options",
    [{"requester_pays": True}, {"version_aware": True}, {"session_kwargs": {"trust_env": True}}, {"something": "new"}],
)
def test_what_cannot_be_said_of_google_is_left_to_gcsfs(options: dict[str, Any]) -> None:
    assert google_settings(options, None) is None
