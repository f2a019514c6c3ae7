"""Tests of the pages about Horovod: their programs run under `horovodrun`, and in its estimators."""

from __future__ import annotations

from pathlib import Path

import pytest

from neighbours.conftest import Run
from neighbours.pages import marked_pages, run_page


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", marked_pages(horovod=True))
def test_programs_of_horovod_pages_run(page: str, tmp_path: Path, run: Run) -> None:
    run_page(page, tmp_path, run)
