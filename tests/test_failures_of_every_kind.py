"""Every public call that uses storage raises the documented error for every exception that a file system may raise.

Each exception is raised once in each call, at another of its requests.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.failing_calls import CALLS, EXPECTED, Case, check_failures, write_datasets

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def written() -> dict[str, bytes]:
    return write_datasets()


@pytest.mark.filterwarnings("ignore:the replaced file:UserWarning")
@pytest.mark.parametrize("kind", ["fsspec", "own handler"])
@pytest.mark.parametrize("name", CALLS)
def test_public_call_raises_storage_error_for_every_exception(name: str, kind: str, written: dict[str, bytes]) -> None:
    shift = sorted(CALLS).index(name)

    def cases(requests: int) -> Iterator[Case]:
        for place, expected in enumerate(EXPECTED):
            yield (shift + 7 * place) % requests, expected

    check_failures(name, kind, written, cases)
