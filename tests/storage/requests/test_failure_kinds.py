"""Tests of classifying exceptions of all storage clients, without importing those clients."""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import http.client
import socket
import ssl
import urllib.error
from email.message import Message
from typing import Any

import aiohttp
import botocore.exceptions
import fsspec.exceptions
import google.auth.exceptions
import pytest
import requests
import urllib3.exceptions
from azure.core import exceptions as azure

from petastore.storage.requests.failure_kinds import advice, causes, kind_of, message_of


def client_error(code: str, status: int = 400) -> Exception:
    answer = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return botocore.exceptions.ClientError(answer, "GetObject")


def answer_error(status: int) -> Exception:
    request: Any = None
    return aiohttp.ClientResponseError(request, (), status=status)


def requests_error(status: int) -> Exception:
    response = requests.Response()
    response.status_code = status
    return requests.HTTPError("no", response=response)


def raised_from(outer: Exception, inner: Exception) -> Exception:
    outer.__cause__ = inner
    return outer


google_auth: Any = google.auth.exceptions
_POOL: Any = None
_KEY: Any = aiohttp.client_reqrep.ConnectionKey("host", 443, True, True, None, None, None)

KINDS: dict[str, list[BaseException]] = {
    "timeout": [
        TimeoutError(), TimeoutError("timed out"), concurrent.futures.TimeoutError(),
        OSError(errno.ETIMEDOUT, "timed out"), fsspec.exceptions.FSTimeoutError(),
        botocore.exceptions.ReadTimeoutError(endpoint_url="http://s3"),
        botocore.exceptions.ConnectTimeoutError(endpoint_url="http://s3"), client_error("RequestTimeout"),
        aiohttp.ServerTimeoutError(), aiohttp.ConnectionTimeoutError(), requests.ReadTimeout(),
        requests.ConnectTimeout(),
        urllib3.exceptions.ReadTimeoutError(_POOL, "", ""),
        answer_error(504), answer_error(408), urllib.error.URLError(TimeoutError()),
        raised_from(OSError(errno.EIO, "?"), botocore.exceptions.ReadTimeoutError(endpoint_url="http://s3")),
        OSError("AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 28, Timeout was reached"),
    ],
    "connection": [
        ConnectionResetError(104, "reset"), ConnectionResetError("x"), ConnectionRefusedError(),
        ConnectionAbortedError(), BrokenPipeError(), socket.gaierror(-2, "Name or service not known"),
        ssl.SSLError("handshake"),
        ssl.SSLCertVerificationError("expired"), OSError(errno.EHOSTUNREACH, "No route to host"),
        OSError(errno.ENETUNREACH, "unreachable"), botocore.exceptions.EndpointConnectionError(endpoint_url="http://s3"),
        botocore.exceptions.ConnectionClosedError(endpoint_url="http://s3"),
        botocore.exceptions.HTTPClientError(error="reset"), botocore.exceptions.SSLError(endpoint_url="x", error="y"),
        botocore.exceptions.IncompleteReadError(actual_bytes=1, expected_bytes=2),
        aiohttp.ServerDisconnectedError(), aiohttp.ClientPayloadError("cut"), aiohttp.ClientConnectionError(),
        aiohttp.ClientConnectorError(_KEY, OSError(errno.ECONNREFUSED, "refused")), requests.ConnectionError("no"),
        requests.exceptions.ChunkedEncodingError(), requests.exceptions.ProxyError(), requests.exceptions.SSLError(),
        urllib3.exceptions.ProtocolError("cut"), urllib3.exceptions.MaxRetryError(_POOL, "/", None),
        http.client.IncompleteRead(b""), http.client.RemoteDisconnected(""), asyncio.IncompleteReadError(b"", 1),
        azure.ServiceRequestError("no"), azure.ServiceResponseError("no"), google_auth.TransportError("no"),
        urllib.error.URLError(socket.gaierror(-2, "unknown")), RuntimeError("Session is closed"),
        OSError("AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 6, Couldn't resolve host name"),
    ],
    "access": [
        PermissionError(errno.EACCES, "denied"), PermissionError("Access Denied"), OSError(errno.EPERM, "no"),
        botocore.exceptions.NoCredentialsError(),
        botocore.exceptions.PartialCredentialsError(provider="env", cred_var="key"), client_error("AccessDenied", 403),
        client_error("403", 403), client_error("InvalidAccessKeyId"), client_error("ExpiredToken"), answer_error(401),
        answer_error(403), requests_error(403), urllib.error.HTTPError("http://x", 403, "Forbidden", Message(), None),
        google_auth.DefaultCredentialsError("none"), google_auth.RefreshError("none"),
        azure.ClientAuthenticationError("no"), OSError("Forbidden: bucket/x\nno access"),
        OSError("When reading: AWS Error ACCESS_DENIED during HeadObject operation: No response body."),
        OSError("google::cloud::Status(PERMISSION_DENIED: no)"),
    ],
    "missing": [
        FileNotFoundError(errno.ENOENT, "none"), FileNotFoundError("x"), client_error("NoSuchKey", 404),
        client_error("NoSuchBucket", 404), client_error("404", 404), answer_error(404), requests_error(404),
        azure.ResourceNotFoundError("none"),
        OSError("When listing: AWS Error NO_SUCH_BUCKET during ListObjectsV2 operation"),
    ],
    "exists": [FileExistsError(errno.EEXIST, "there")],
    "busy": [client_error("SlowDown", 503), answer_error(429), answer_error(503), requests_error(429)],
    "other": [
        OSError(errno.ENOSPC, "full"), OSError(errno.EROFS, "read-only"), OSError(errno.EMFILE, "many"),
        OSError("what"), ValueError("no ranges"), NotImplementedError(), KeyError("Contents"),
        AttributeError("x"), TypeError("x"),
        EOFError(), StopIteration(), RuntimeError("x"), Exception(), client_error("InternalError", 500),
        answer_error(500), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"), botocore.exceptions.NoRegionError(),
        botocore.exceptions.ProfileNotFound(profile="x"), ZeroDivisionError(), AssertionError(),
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_exceptions_of_storage_clients_are_classified(kind: str) -> None:
    found = {f"{type(problem)}: {message_of(problem)}": kind_of(problem)[0] for problem in KINDS[kind]}
    assert found == dict.fromkeys(found, kind)


def test_errno_is_found_in_chained_exceptions() -> None:
    problem = raised_from(RuntimeError("could not write"), OSError(errno.ENOSPC, "No space left on device"))
    assert kind_of(problem) == ("other", errno.ENOSPC)
    assert "full" in advice(problem, *kind_of(problem))


def test_error_in_an_exception_handler_is_not_a_missing_file() -> None:
    problem = KeyError("Contents")
    problem.__context__ = FileNotFoundError("x")
    assert kind_of(problem)[0] == "other"


def test_walking_cyclic_exception_causes_ends() -> None:
    one, other = OSError("one"), OSError("other")
    one.__cause__, other.__cause__ = other, one
    assert list(causes(one)) == [one, other]


def test_exceptions_with_a_failing_str_are_classified() -> None:
    class OddError(Exception):
        @property
        def status(self) -> int:
            raise RuntimeError

        def __str__(self) -> str:
            raise KeyError

    assert kind_of(OddError())[0] == "other"
    assert message_of(OddError()) == "(its message cannot be read)"


@pytest.mark.parametrize(
    "text",
    [
        "The HTTP server doesn't appear to support range requests. Only reading from the beginning is supported",
        "Cannot seek streaming HTTP file",
        "Got more bytes so far (>100) than requested (10)",
    ],
)
def test_server_without_range_support_raises_with_advice(text: str) -> None:
    assert "Copy the files to a disk" in advice(ValueError(text), "other", None)
