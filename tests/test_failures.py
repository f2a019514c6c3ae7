"""Tests of storage failures: every public call raises the documented error when any of its requests fails.

Each request of each call fails once. Each exception that a filesystem may raise is raised once in each call.
Read-only requests are retried after transient errors, and then no error is raised.
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
    shift = sorted(CALLS).index(name)  # so that different calls get different exceptions at the same request number

    def cases(requests: int) -> Iterator[Case]:
        # `make test-all` lets every request fail on one kind of filesystem, and every second request on the other kind,
        # alternating by call. `make test` lets every sixth request of each kind fail, with different offsets.
        step = sized(full=1 + ((kind == "own handler") == shift % 2), quick=6)
        for number in range(step // 2 * (kind == "own handler"), requests, step):
            yield number, EXPECTED[(shift + number) % len(EXPECTED)]
        # The remaining exceptions, after each request has failed once; each kind of filesystem raises every second one.
        for number in range(requests, sized(full=len(EXPECTED), quick=0)):
            if (number + shift) % 2 == (kind == "own handler"):
                yield number % requests, EXPECTED[(shift + number) % len(EXPECTED)]

    check_failures(name, kind, written, cases)
