"""Every public call that uses storage raises the documented error when any of its requests fails.

Each request of each call fails once, and each exception that a file system may raise is raised once in each call.
Requests that change nothing are retried where that may help, and then no error is raised.
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
        # `make test-all` takes every request of one kind of file system and half of those of the other, by turns;
        # `make test` every sixth of each, and not the same ones of both.
        step = sized(full=1 + ((kind == "own handler") == shift % 2), quick=6)
        for number in range(step // 2 * (kind == "own handler"), requests, step):
            yield number, EXPECTED[(shift + number) % len(EXPECTED)]
        # Exceptions that are left when each request has failed once; one kind of file system raises every other one.
        for number in range(requests, sized(full=len(EXPECTED), quick=0)):
            if (number + shift) % 2 == (kind == "own handler"):
                yield number % requests, EXPECTED[(shift + number) % len(EXPECTED)]

    check_failures(name, kind, written, cases)
