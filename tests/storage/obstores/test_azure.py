"""Options of adlfs are said to obstore as they are meant, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from petastore.storage.obstores.azure import azure_settings


class Blobs:
    """What adlfs has made of its options."""

    account_name, account_key, sas_token, connection_string, credential, location_mode = (
        "me",
        None,
        None,
        None,
        None,
        None,
    )
    account_url = "https://me.blob.core.windows.net"

    def __init__(self, **found: Any) -> None:
        vars(self).update(found)


PLACE = {"account_name": "me", "endpoint": "https://me.blob.core.windows.net"}


class Tokens:
    def get_token(self, *scopes: str) -> None:
        """Give none."""


@pytest.mark.parametrize(
    ("found", "config", "signed"),
    [
        ({}, {**PLACE, "skip_signature": True}, (None, None, False)),
        ({"account_key": "hush"}, PLACE, ("hush", None, False)),
        ({"sas_token": "?sig=hush"}, PLACE, (None, "sig=hush", False)),
        ({"account_key": "hush", "sas_token": "sig=hush"}, PLACE, ("hush", None, False)),
        ({"credential": Tokens(), "account_key": "hush"}, PLACE, (None, None, True)),
        (
            {"connection_string": "AccountName=me;AccountKey=hush==;EndpointSuffix=core.windows.net"},
            PLACE,
            ("hush==", None, False),
        ),
        (
            {"connection_string": "BlobEndpoint=http://127.0.0.1:1/you/;SharedAccessSignature=sig=hush"},
            {"account_name": "127", "endpoint": "http://127.0.0.1:1/you"},
            (None, "sig=hush", False),
        ),
    ],
)  # fmt: skip
def test_what_azure_is_told(found: dict[str, Any], config: Any, signed: Any) -> None:
    settings = azure_settings({}, Blobs(**found))
    assert settings is not None
    assert dict(settings.config) == config
    assert (settings.key, settings.sas, settings.credential is not None) == signed
    assert "hush" not in repr(settings)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"request_session": object()}, {}),
        ({"version_aware": True}, {}),
        ({"something": "new"}, {}),
        ({}, {"location_mode": "secondary"}),
        ({}, {"credential": "sig=hush"}),
        ({}, {"account_name": None}),
        ({}, {"connection_string": "UseDevelopmentStorage=true"}),
        ({}, {"connection_string": "AccountKey=hush"}),
        ({}, {"connection_string": "BlobEndpoint=https://h?sig=hush"}),
    ],
)
def test_what_cannot_be_said_of_azure_is_left_to_adlfs(options: dict[str, Any], found: dict[str, Any]) -> None:
    assert azure_settings(options, Blobs(**found)) is None
