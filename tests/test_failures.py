"""Every public call that uses storage raises the documented error when any of its requests fails.

Each request of each call fails once, each time with another exception. Requests that change nothing are retried where
that may help, and then no error is raised.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.failing_calls import CALLS, EXPECTED, Case, check_failures, write_datasets
from tests.tier import sized


@pytest.fixture(scope="module")
def written() -> dict[str, bytes]:
    return write_datasets()


@pytest.mark.filterwarnings("ignore:the replaced file:UserWarning")
@pytest.mark.parametrize("kind", ["fsspec", "own handler"])
@pytest.mark.parametrize("name", CALLS)
def test_public_call_raises_storage_error_when_a_request_fails(name: str, kind: str, written: dict[str, bytes]) -> None:
    shift = sorted(CALLS).index(name)  # so that each call has other exceptions at its requests

    def cases(requests: int) -> Iterator[Case]:
        step = sized(full=1, quick=2)  # `make test` takes every other request of each kind of file system
        for at in range((kind == "own handler") % step, requests, step):
            yield at, EXPECTED[(shift + at) % len(EXPECTED)]

    check_failures(name, kind, written, cases)
