"""Versions are compared by what the storage says of them; failures are told apart whatever client raised them."""

from __future__ import annotations

from typing import Any

import aiohttp
import botocore.exceptions
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.storage.ranges.client import FileVersion, is_transient

TEXTS = st.sampled_from(["", "a", "b", 'W/"a"'])
VERSIONS = st.builds(FileVersion, st.integers(0, 2), TEXTS, st.sampled_from(["", "x", "y"]))


@given(VERSIONS, VERSIONS)
def test_sameness_is_mutual_and_each_is_itself(one: FileVersion, other: FileVersion) -> None:
    assert one.is_same(one)
    assert one.is_same(other) == other.is_same(one)


def test_another_size_is_another_version_whatever_the_etag_says() -> None:
    assert not FileVersion(1, "a").is_same(FileVersion(2, "a"))


def test_a_weak_etag_tells_versions_apart_but_cannot_be_demanded() -> None:
    weak = FileVersion(1, 'W/"a"')
    assert weak.is_same(FileVersion(1, '"a"'))
    assert not weak.is_same(FileVersion(1, '"b"'))
    assert (weak.strong_etag, FileVersion(1, '"a"').strong_etag) == ("", '"a"')


def boto(status: int, code: str) -> Exception:
    return botocore.exceptions.ClientError(
        {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}},
        "GetObject",
    )


def web(status: int) -> Exception:
    request: Any = None
    return aiohttp.ClientResponseError(request, (), status=status)


@pytest.mark.parametrize(
    "problem", [boto(500, "InternalError"), boto(503, "SlowDown"), web(500), web(502), web(429), web(504)], ids=repr
)
def test_faults_of_a_server_may_pass(problem: Exception) -> None:
    assert is_transient(problem)


@pytest.mark.parametrize("problem", [boto(403, "AccessDenied"), boto(404, "NoSuchKey"), web(403), web(412)], ids=repr)
def test_refusals_do_not_pass(problem: Exception) -> None:
    assert not is_transient(problem)
