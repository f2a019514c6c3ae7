"""Fixtures and rules of all tests: test tiers, the leak check, and reproducible Hypothesis examples."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from petastore.inventory import Inventory
from petastore.plan import Order, Plan, ReadRequest
from petastore.storage.requests import retries
from tests import leaks
from tests.java_options import tell_java
from tests.tier import IS_FULL

# Plugins: hooks of the same name must not shadow each other, so each is a module of its own.
pytest_plugins = [
    "pytester",
    "tests.tier_selection",
    "tests.durations",
    "tests.frozen_heap",
    "tests.time_limits",
    "tests.warm_interpreters",
    "tests.servers.fixtures",
    "tests.shared_sessions",
]

tell_java(os.environ)
# torch reads this variable for its number of threads. With one thread per CPU in each pytest worker, threads spin while
# they wait for each other.
os.environ.setdefault("MKL_NUM_THREADS", "1")
settings.register_profile("all", derandomize=True, deadline=None, max_examples=100)
settings.register_profile("quick", derandomize=True, deadline=None, max_examples=25)
settings.register_profile("dev", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "all" if IS_FULL else "quick"))

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def repository() -> Path:
    """Return the root of the repository."""
    return REPOSITORY


@pytest.fixture(scope="session")
def fonts() -> None:
    """Draw once with Matplotlib, which keeps its font files open, so that the leak check does not blame a test."""
    order = Order(seed=0, shuffle_row_groups=True, shuffle_rows=True, lanes=1, block_rows=1)
    Plan(Inventory.of_rows([1]), ReadRequest(("id",), order)).plot(1).savefig(io.BytesIO())


@pytest.fixture(scope="session")
def fixtures_root() -> Path:
    """Return the folder of datasets that Petastorm wrote: `PETASTORE_FIXTURES`, by default `tests/fixtures`."""
    root = Path(os.environ.get("PETASTORE_FIXTURES", REPOSITORY / "tests" / "fixtures"))
    if not (root / "petastorm-0.13.1" / "Meadow").is_dir():
        pytest.fail(
            f"there are no datasets of Petastorm under {root}: take tests/fixtures from the repository, "
            "or name their folder with PETASTORE_FIXTURES",
            pytrace=False,
        )
    return root


@pytest.fixture(scope="session", autouse=True)
def _cache_of_this_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep petastore's cache directory in a temporary folder of this run instead of the user's home."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PETASTORE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _pools_of_python_itself() -> None:
    """Start the helper processes that multiprocessing keeps, so that the leak check does not blame a test for them."""
    leaks.start_what_python_keeps()


def _shorten_backoff(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(retries, "LONGEST_PAUSE_S", 0.001)
    patch.setenv("AWS_MAX_ATTEMPTS", "2")


@pytest.fixture(scope="module", autouse=True)
def short_backoff() -> Iterator[pytest.MonkeyPatch]:
    """Bound retry backoff by a millisecond, and make botocore retry once.

    Tests about backoff use `real_backoff`.
    """
    with pytest.MonkeyPatch.context() as patch:
        _shorten_backoff(patch)
        yield patch


@pytest.fixture
def real_backoff(short_backoff: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore the retry backoff that users have."""
    short_backoff.undo()
    yield
    _shorten_backoff(short_backoff)


@pytest.fixture(autouse=True)
def _nothing_is_left_running(request: pytest.FixtureRequest, _pools_of_python_itself: None) -> Iterator[None]:
    """Fail a test that leaves threads, child processes, open files or shared memory behind (leak check).

    Spark and TensorFlow keep pools of their own, so tests marked `spark`, `tf` or `leaves_running` are not checked.
    """
    if any(request.node.get_closest_marker(name) for name in ("spark", "tf", "leaves_running")):
        yield
        return
    before = leaks.Running.now()
    yield
    left = leaks.left_since(before)
    if left:
        pytest.fail("the test left something running:\n" + "\n".join(left), pytrace=False)
