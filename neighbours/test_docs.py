"""Tests of documentation pages whose programs need engines that `make test` lacks; Horovod's are separate."""

from __future__ import annotations

from pathlib import Path

import pytest

from neighbours.conftest import Run
from neighbours.pages import marked_pages, run_page

# keras/test_backends.py runs this page on every backend.
PAGES = [page for page in marked_pages(horovod=False) if page != "how-to/train-with-keras.md"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", PAGES)
def test_programs_of_documentation_pages_run(page: str, tmp_path: Path, run: Run) -> None:
    run_page(page, tmp_path, run)
