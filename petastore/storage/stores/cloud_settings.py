"""Convert options of s3fs, gcsfs and adlfs to settings and credentials of obstore.

obstore is the client library for S3, Google Cloud Storage and Azure.
"""

from __future__ import annotations

import configparser
import datetime as dt
import inspect
import json
import os
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from petastore.storage.stores.store_settings import StoreOptions, StoreSettings, constant_credentials, store_maker

__all__ = [
    "azure_settings",
    "gcs_settings",
    "s3_settings",
]

_LOOKED_UP_AGAIN_AFTER = dt.timedelta(minutes=10)
"""Assumed lifetime of access keys.

obstore requests new keys five minutes before the end of this lifetime, so it notices a rewritten credentials file.
"""


def s3_settings(options: Mapping[str, Any]) -> StoreSettings:
    """Return the connection settings of obstore that are equivalent to s3fs options.

    Raises:
        InvalidArgumentError: An option has no counterpart in obstore.

    Example:
        >>> s3_settings({"anon": True, "endpoint_url": "http://127.0.0.1:9000"}).server
        ('s3', 'http://127.0.0.1:9000')
    """
    given = StoreOptions("s3", options, "s3fs.S3FileSystem")
    key = given.take("key", "username", "aws_access_key_id")
    secret = given.take("secret", "password", "aws_secret_access_key")
    token, profile = given.take("token", "aws_session_token"), given.take("profile")
    if (key is None) != (secret is None):
        raise given.error("given with both key and secret, or without both, got only one of them")
    anonymous = bool(given.take("anon"))
    config, client, style = _address(given)
    given.reject_others()
    endpoint, region = config.get("endpoint"), config.get("region")
    finds = key is None and not anonymous
    provider = _found_credentials(profile) if finds else None
    if key is not None and not anonymous:
        provider = constant_credentials(access_key_id=str(key), secret_access_key=str(secret), token=token)

    def make_child_filesystem() -> Any:
        from pyarrow import fs

        place = {"endpoint_override": endpoint, "region": region}
        # Credentials in AWS's standard locations are not passed on, because Arrow finds and refreshes them itself.
        known = provider() if provider is not None and not (finds and profile is None) else {}
        keys = {"access_key": "access_key_id", "secret_key": "secret_access_key", "session_token": "token"}
        signed = {name: known.get(ours) for name, ours in keys.items()}
        return fs.S3FileSystem(
            anonymous=anonymous,
            force_virtual_addressing=style == "virtual",
            **{name: value for name, value in {**place, **signed}.items() if value is not None},
        )

    if anonymous:
        config["skip_signature"] = True
    if style == "virtual" and endpoint is not None:
        config["endpoint"] = endpoint.replace("://", "://{bucket}.", 1)
    return StoreSettings(
        store_maker("S3Store", config, None if provider is None else lambda: provider),
        make_child_filesystem,
        ("s3", endpoint or ""),
        client,
        is_anonymous=anonymous,
        finds_credentials=finds,
    )


def _address(given: StoreOptions) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Return obstore's settings, its HTTP client options, and S3's addressing style.

    The settings are, for example, the endpoint and the region.
    """
    endpoint, region = given.take("endpoint_url", "endpoint") or _endpoint_around(), given.take("region_name", "region")
    verify, secure, proxies = given.take("verify"), given.take("use_ssl"), given.take("proxies") or {}
    style = str((given.take("s3") or {}).get("addressing_style", "auto"))
    if endpoint is None and (style == "path" or secure is False):
        raise given.error(
            "given with endpoint_url if addressing_style='path' or use_ssl=False is set, got no endpoint_url"
        )
    config: dict[str, Any] = {"request_payer": True} if given.take("requester_pays") else {}
    config |= {"region": region} if region else {}
    proxy = proxies.get("https") or proxies.get("http")
    client: dict[str, Any] = {"proxy_url": proxy} if proxy else {}
    if endpoint is not None:
        config |= {"endpoint": str(endpoint).rstrip("/"), "virtual_hosted_style_request": style == "virtual"}
        client |= {"allow_http": True} if str(endpoint).startswith("http://") else {}
    if verify is False:
        client["allow_invalid_certificates"] = True
    elif isinstance(verify, (str, os.PathLike)):
        client["root_certificate"] = Path(verify).read_bytes()
    return config, client, style


def _endpoint_around() -> str | None:
    if os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() == "true":
        return None
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def _found_credentials(profile: str | None) -> Callable[[], dict[str, Any]] | None:
    """Return a function that finds credentials of AWS.

    It looks in the environment, AWS's files and botocore. Return None if obstore must find the credentials itself.
    """
    refreshed: list[Any] = []

    def provide() -> dict[str, Any]:
        known = (
            (_in_environment() if profile is None else None) or _in_file(profile) or _by_botocore(profile, refreshed)
        )
        if known is None:
            raise PermissionError(
                "no credentials were found in the environment, in files, or by the machine. Set storage_options or "
                "the variables of the cloud's SDK"
            )
        return {**known, "expires_at": dt.datetime.now(dt.UTC) + _LOOKED_UP_AGAIN_AFTER}

    is_somewhere = _in_environment() is not None or _in_file(profile) is not None
    return provide if profile is not None or is_somewhere or find_spec("botocore") is not None else None


def _by_botocore(profile: str | None, refreshed: list[Any]) -> dict[str, Any] | None:
    """Return credentials from botocore (SSO, roles, instance); None if it finds none.

    The list `refreshed` caches credentials that botocore can refresh, for later calls.
    """
    if find_spec("botocore") is None:
        return None
    from botocore.session import Session

    credentials = refreshed[0] if refreshed else Session(profile=profile).get_credentials()
    if credentials is None:
        return None
    if hasattr(credentials, "refresh_needed"):
        refreshed[:] = [credentials]
    frozen = credentials.get_frozen_credentials()
    return {"access_key_id": frozen.access_key, "secret_access_key": frozen.secret_key, "token": frozen.token}


def _in_environment() -> dict[str, Any] | None:
    """Return the AWS keys in environment variables; None if missing or temporary.

    Keys with an expiration time are temporary; botocore finds and refreshes these.
    """
    key, secret = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    if not key or not secret or os.environ.get("AWS_CREDENTIAL_EXPIRATION"):
        return None
    token = os.environ.get("AWS_SECURITY_TOKEN") or os.environ.get("AWS_SESSION_TOKEN")
    return {"access_key_id": key, "secret_access_key": secret, "token": token}


def _in_file(profile: str | None) -> dict[str, Any] | None:
    """Return the keys of a profile in `~/.aws/credentials`; None if it has none.

    botocore is not used, because importing it takes half a second.
    """
    place = os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"
    parser = configparser.RawConfigParser()
    try:
        parser.read(Path(place).expanduser(), encoding="utf-8")
        section = parser[profile or os.environ.get("AWS_PROFILE") or "default"]
        key, secret = section["aws_access_key_id"], section["aws_secret_access_key"]
    except (configparser.Error, KeyError, OSError, UnicodeDecodeError):
        return None
    return {"access_key_id": key, "secret_access_key": secret, "token": section.get("aws_session_token")}


_SCOPES = ["https://www.googleapis.com/auth/devstorage.read_write"]
_NEVER = dt.datetime(2100, 1, 1, tzinfo=dt.UTC)
_DEFAULTS = (None, "cloud", "google_default")
# These options have no effect here: gcsfs uses them for caching, to create buckets and to check uploads.
_WITHOUT_EFFECT = (
    "access", "cache_timeout", "check_connection", "consistency", "default_location", "finalize_on_close",
    "requests_timeout", "secure_serialize",
)  # fmt: skip


def gcs_settings(options: Mapping[str, Any]) -> StoreSettings:
    """Return the connection settings of obstore that are equivalent to gcsfs options.

    Raises:
        InvalidArgumentError: An option has no counterpart in obstore.

    Example:
        >>> gcs_settings({"token": "anon", "endpoint_url": "http://127.0.0.1:4443/"}).server
        ('gs', 'http://127.0.0.1:4443')
    """
    given = StoreOptions("gs", options, "gcsfs.GCSFileSystem")
    token, project, payer = given.take("token"), given.take("project"), given.take("requester_pays")
    emulator = os.environ.get("STORAGE_EMULATOR_HOST", "")
    around = emulator if "://" in emulator or not emulator else f"http://{emulator}"
    endpoint = str(given.take("endpoint_url") or around).rstrip("/")
    given.take(*_WITHOUT_EFFECT)
    given.reject_others()
    if token in ("browser", "cache"):
        raise given.error(
            f"given with a token that is a file, a dict, credentials of google.auth or 'anon', got {token!r}"
        )
    anonymous = token == "anon" or (token is None and bool(emulator))  # noqa: S105 - an option value of gcsfs
    config, provider = ({"skip_signature": True}, None) if anonymous else _credentials(token)
    config |= {"base_url": endpoint} if endpoint else {}
    client: dict[str, Any] = {"allow_http": True} if endpoint.startswith("http://") else {}
    if payer:
        client["default_headers"] = {"x-goog-user-project": str(project if payer is True else payer)}

    def make_child_filesystem() -> Any:
        from pyarrow import fs

        place: dict[str, Any] = {"project_id": project} if project else {}
        if endpoint:
            scheme, _, host = endpoint.partition("://")
            place |= {"endpoint_override": host, "scheme": scheme}
        if anonymous:
            return fs.GcsFileSystem(anonymous=True, **place)
        if token in _DEFAULTS:
            return fs.GcsFileSystem(**place)
        found = (provider or _google_auth(token))()()
        return fs.GcsFileSystem(
            access_token=found["token"], credential_token_expiration=found["expires_at"] or _NEVER, **place
        )

    return StoreSettings(
        store_maker("GCSStore", config, provider),
        make_child_filesystem,
        ("gs", endpoint),
        client,
        is_anonymous=anonymous,
    )


def _credentials(token: Any) -> tuple[dict[str, Any], Callable[[], Any] | None]:
    """Convert a `token` of gcsfs; return obstore's settings and a provider factory.

    The factory is a function that creates a credential provider. It is None if the settings contain the credentials, or
    if obstore finds credentials itself.
    """
    if token in _DEFAULTS:
        return {}, None
    if isinstance(token, Mapping):
        if token.get("type", "service_account") == "service_account":
            return {"service_account_key": json.dumps(dict(token))}, None
        return {}, _google_auth(token)
    if isinstance(token, (str, os.PathLike)) and os.path.exists(token):  # noqa: PTH110 - a token may be no path
        return {"application_credentials": os.fspath(token)}, None
    if isinstance(token, str):
        return {}, lambda: constant_credentials(token=token)
    return {}, _google_auth(token)


def _google_auth(token: Any) -> Callable[[], Any]:
    def make() -> Any:
        from google.oauth2 import credentials as of_users
        from google.oauth2 import service_account
        from obstore.auth.google import GoogleCredentialProvider

        credentials = token
        if isinstance(token, (str, os.PathLike)):
            credentials = json.loads(Path(token).read_text(encoding="utf-8"))
        if isinstance(credentials, Mapping) and credentials.get("type") == "authorized_user":
            credentials = of_users.Credentials.from_authorized_user_info(credentials)
        elif isinstance(credentials, Mapping):
            credentials = service_account.Credentials.from_service_account_info(credentials, scopes=_SCOPES)
        return GoogleCredentialProvider(credentials=credentials)

    return make


_IN_CONNECTION_STRINGS = {
    "accountkey", "accountname", "blobendpoint", "defaultendpointsprotocol", "endpointsuffix", "sharedaccesssignature",
    "fileendpoint", "queueendpoint", "tableendpoint",
}  # fmt: skip
_OF_SERVICES = ("tenant_id", "client_id", "client_secret")
_TRUE = ("1", "t", "true", "True", "TRUE")
_SCOPE = "https://storage.azure.com/.default"


def azure_settings(options: Mapping[str, Any]) -> StoreSettings:
    """Return the connection settings of obstore that are equivalent to adlfs options.

    Raises:
        InvalidArgumentError: An option has no counterpart in obstore, or the account name is missing.

    Example:
        >>> azure_settings({"account_name": "me", "anon": True}).server
        ('abfs', 'https://me.blob.core.windows.net')
    """
    given = StoreOptions("abfs", options, "adlfs.AzureBlobFileSystem")
    account, endpoint, keys = _account_of(given)
    credential, mode = given.take("credential"), given.take("location_mode")
    # A connection string without a key is only an address, so requests are anonymous.
    is_open = given.take("anon") or "account_name" not in keys or os.environ.get("AZURE_STORAGE_ANON", "") in _TRUE
    given.take("assume_container_exists")
    given.reject_others()
    if mode not in (None, "primary"):
        raise given.error(f"given with location_mode='primary' or without it, got {mode!r}")
    if isinstance(credential, str):
        keys["sas_token" if "sig=" in credential else "account_key"] = credential
        credential = None
    if inspect.iscoroutinefunction(getattr(credential, "get_token", None)):
        raise given.error("given with a credential of azure.identity, got an asynchronous one of azure.identity.aio")
    key, sas = keys.get("account_key"), (keys.get("sas_token") or "").removeprefix("?")
    service = {name: keys[name] for name in _OF_SERVICES if keys.get(name)}
    is_service = len(service) == len(_OF_SERVICES)
    is_anonymous = not (key or sas or credential is not None or is_service) and bool(is_open)
    config: dict[str, Any] = {"account_name": account, "endpoint": endpoint}
    provider = None
    if is_anonymous:
        config["skip_signature"] = True
    elif credential is not None or not (key or sas or is_service):
        provider = _token_provider(credential)
    elif key or sas:
        provider = constant_credentials(**({"access_key": key} if key else {"sas_token": sas}))
    else:
        config |= service

    def make_child_filesystem() -> Any:
        from pyarrow import fs

        scheme, _, authority = endpoint.partition("://")
        authority = authority.partition("/")[0].removeprefix(account)
        place = {"blob_storage_authority": authority, "blob_storage_scheme": scheme, "dfs_storage_scheme": scheme}
        place["dfs_storage_authority"] = authority.replace(".blob.", ".dfs.", 1)
        if credential is not None or is_anonymous:
            raise OSError(
                "in forked processes, Azure credentials must be an account_key, a sas_token, a client_secret or the "
                "defaults, got others. Start processes with spawn"
            )
        signed = {"account_key": key} if key else {"sas_token": f"?{sas}"} if sas else service if is_service else {}
        return fs.AzureFileSystem(account, **place, **signed)

    client = {"allow_http": True} if endpoint.startswith("http://") else {}
    make_store = store_maker("AzureStore", config, None if provider is None else lambda: provider)
    return StoreSettings(make_store, make_child_filesystem, ("abfs", endpoint), client, is_anonymous=is_anonymous)


def _account_of(given: StoreOptions) -> tuple[str, str, dict[str, Any]]:
    """Return the Azure account, its address, and a dict of credentials.

    All are from options, environment variables or a connection string.
    """
    names = ("account_name", "connection_string", "account_key", "sas_token", *_OF_SERVICES)
    keys = {name: given.take(name) or os.environ.get(f"AZURE_STORAGE_{name.upper()}") for name in names}
    account, host = keys["account_name"], given.take("account_host")
    if keys["connection_string"] is None:
        if not account:
            raise given.error("given with account_name or connection_string, got neither")
        return account, f"https://{host or f'{account}.blob.core.windows.net'}", keys
    pairs = (part.partition("=") for part in keys["connection_string"].split(";") if part)
    parts = {name.strip().lower(): value for name, _, value in pairs}
    account, endpoint = parts.get("accountname"), parts.get("blobendpoint")
    if not parts.keys() <= _IN_CONNECTION_STRINGS or not (account or endpoint):
        raise given.error("given with a connection_string that has AccountName or BlobEndpoint, and no unknown parts")
    protocol, suffix = parts.get("defaultendpointsprotocol", "https"), parts.get("endpointsuffix", "core.windows.net")
    endpoint = (endpoint or f"{protocol}://{account}.blob.{suffix}").rstrip("/")
    # obstore requires an account name, even for unsigned requests.
    account = account or endpoint.partition("://")[2].partition(".")[0]
    return account, endpoint, {"account_key": parts.get("accountkey"), "sas_token": parts.get("sharedaccesssignature")}


def _token_provider(credential: Any) -> Any:
    """Return an obstore token provider for a credential, or Azure's default.

    Return None, so that obstore finds credentials, if Azure's default needs a package that is not installed.
    """
    try:
        from obstore.auth.azure import AzureCredentialProvider
    except ImportError:
        if credential is not None:
            raise
        return None
    return AzureCredentialProvider(credential, scopes=[_SCOPE])
