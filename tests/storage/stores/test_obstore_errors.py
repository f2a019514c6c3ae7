"""Tests of converting obstore exceptions to built-in ones: server messages, and hidden signatures."""

from __future__ import annotations

import pytest

from petastore.storage.stores.interface import NoBucketError, NotTheVersionError, WrongRegionError
from petastore.storage.stores.obstore_errors import as_builtin


def raised(name: str, text: str) -> Exception:
    """Return a stand-in for an obstore exception, which is recognized by its name and message."""
    base = FileNotFoundError if name == "NotFoundError" else Exception
    kind = type(name, (base,), {"__module__": "obstore.exceptions"})
    return kind(text)


def answered(status: int, code: str = "", message: str = "") -> str:
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>" if code else ""
    return f"Generic S3 error: server returned non-2xx status code: {status} Something: {body}"


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("PreconditionError", "etag", NotTheVersionError),
        ("GenericError", answered(412), NotTheVersionError),
        ("GenericError", answered(416), NotTheVersionError),
        ("NotSupportedError", "suffix", OSError),
        ("GenericError", "Unable to parse path", OSError),
        ("GenericError", answered(301, "PermanentRedirect"), WrongRegionError),
        ("GenericError", answered(400, "AuthorizationHeaderMalformed"), WrongRegionError),
        ("NotFoundError", "Object at location a not found", FileNotFoundError),
        ("GenericError", answered(404, "NoSuchKey"), FileNotFoundError),
        ("NotFoundError", answered(404, "NoSuchBucket"), NoBucketError),
        ("NotFoundError", answered(404, "ContainerNotFound"), NoBucketError),
        ("PermissionDeniedError", "no", PermissionError),
        ("UnauthenticatedError", "who", PermissionError),
        ("GenericError", answered(403, "AccessDenied"), PermissionError),
        ("GenericError", answered(400, "ExpiredToken"), PermissionError),
        ("GenericError", "no credential was found", PermissionError),
        ("GenericError", answered(504), TimeoutError),
        ("GenericError", "operation timed out", TimeoutError),
        ("GenericError", answered(500), ConnectionError),
        ("GenericError", "error sending request for url", ConnectionError),
        ("GenericError", answered(503, "SlowDown"), OSError),
        ("GenericError", answered(429), OSError),
        ("GenericError", "something new", OSError),
    ],
)
def test_obstore_errors_map_to_built_in_exceptions(name: str, text: str, kind: type[Exception]) -> None:
    assert type(as_builtin(raised(name, text))) is kind


def test_obstore_error_keeps_only_the_servers_message() -> None:
    found = as_builtin(
        raised("GenericError", answered(403, "AccessDenied", "Not   for\n you") + "\nDebug source: lots")
    )
    assert str(found) == "HTTP status 403 (AccessDenied: Not for you)"
    assert str(as_builtin(raised("GenericError", answered(500)))) == "HTTP status 500"


def test_obstore_error_without_a_response_has_the_cause() -> None:
    text = (
        'Generic S3 error: error sending request\nDebug source:\nHyper { source: "x", message: "connection refused" }'
    )
    assert (
        str(as_builtin(raised("GenericError", text))) == "Generic S3 error: error sending request (connection refused)"
    )


def test_obstore_error_hides_url_signatures() -> None:
    found = as_builtin(
        raised("GenericError", "error sending request for url (https://host/a?X-Amz-Signature=hushhush)")
    )
    assert "hushhush" not in str(found)


@pytest.mark.parametrize("problem", [OSError("ours"), NotTheVersionError(None), FileNotFoundError("ours")])
def test_as_builtin_returns_other_exceptions_unchanged(problem: Exception) -> None:
    assert as_builtin(problem) is problem
