"""What Petastorm got wrong goes right here: each check, by Petastorm's own names, through the switch."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from petastore.errors import RetiredWarning
from petastore.interop import petastorm as switch
from tests.interop.defects.checks import CHECKS


@pytest.fixture
def _switched() -> Iterator[None]:
    switch.install()
    yield
    switch.uninstall()


@pytest.mark.usefixtures("_switched")
@pytest.mark.parametrize("name", CHECKS)
def test_it_goes_right(name: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RetiredWarning)
        CHECKS[name](tmp_path)
