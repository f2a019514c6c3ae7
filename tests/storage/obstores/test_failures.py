"""Whatever obstore raises is raised as the built-in that it is, in words that hold what the server said."""

from __future__ import annotations

import pytest

from petastore.storage.obstores.failures import as_builtin, translated
from petastore.storage.requests.client import NoBucketError, NotTheVersionError, UnsuitedError


def raised(name: str, text: str) -> Exception:
    """An exception of obstore's: it is known by its name, and by the text that its library in Rust made."""
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
        ("InvalidPathError", "a//b", UnsuitedError),
        ("NotSupportedError", "suffix", UnsuitedError),
        ("GenericError", "Unable to parse path", UnsuitedError),
        ("GenericError", answered(301, "PermanentRedirect"), UnsuitedError),
        ("GenericError", answered(400, "AuthorizationHeaderMalformed"), UnsuitedError),
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
def test_each_is_what_one_would_guess(name: str, text: str, kind: type[Exception]) -> None:
    assert type(as_builtin(raised(name, text))) is kind


def test_what_the_server_said_is_said_and_no_more() -> None:
    found = as_builtin(
        raised("GenericError", answered(403, "AccessDenied", "Not   for\n you") + "\nDebug source: lots")
    )
    assert str(found) == "HTTP status 403 (AccessDenied: Not for you)"
    assert str(as_builtin(raised("GenericError", answered(500)))) == "HTTP status 500"


def test_without_an_answer_the_first_line_and_the_last_cause_are_said() -> None:
    text = (
        'Generic S3 error: error sending request\nDebug source:\nHyper { source: "x", message: "connection refused" }'
    )
    assert (
        str(as_builtin(raised("GenericError", text))) == "Generic S3 error: error sending request (connection refused)"
    )


def test_a_signature_in_an_address_is_not_said() -> None:
    found = as_builtin(
        raised("GenericError", "error sending request for url (https://host/a?X-Amz-Signature=hushhush)")
    )
    assert "hushhush" not in str(found)


@pytest.mark.parametrize("problem", [OSError("ours"), UnsuitedError("ours"), NotTheVersionError(None)])
def test_what_is_known_already_passes_as_it_is(problem: Exception) -> None:
    with pytest.raises(type(problem)) as caught, translated():
        raise problem
    assert caught.value is problem


def test_what_goes_wrong_with_credentials_is_raised_as_it_is() -> None:
    class TokenError(Exception):
        """Of another library."""

    with pytest.raises(TokenError), translated():
        raise TokenError


def test_what_is_raised_has_nothing_chained_to_it_that_could_hold_a_secret() -> None:
    with pytest.raises(PermissionError) as caught, translated():
        raise raised("GenericError", answered(403))
    assert caught.value.__suppress_context__
    assert caught.value.__cause__ is None
