"""Pages whose programs need engines that `make test` has not: run as a reader of the page would do it."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest

from neighbours.conftest import REPOSITORY, Run

MARK = "<!-- needs: neighbours -->"
PAGES = [page for page in sorted((REPOSITORY / "docs").rglob("*.md")) if MARK in page.read_text(encoding="utf-8")]
PROGRAM = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMANDS = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"# ([\w./]+\.py)\n")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_the_programs_of_a_page_run(page: Path, tmp_path: Path, run: Run) -> None:
    """Programs that have names are saved, and the page says how they are run; others are one program together."""
    text = page.read_text(encoding="utf-8")
    named = {found[1]: block for block in PROGRAM.findall(text) if (found := NAME.match(block)) is not None}
    others = [block for block in PROGRAM.findall(text) if NAME.match(block) is None]
    for name, block in named.items():
        (tmp_path / name).write_text(block, encoding="utf-8")
    commands = [line for block in COMMANDS.findall(text) for line in block.splitlines()] if named else []
    assert len(commands) >= bool(named)
    if others:
        (tmp_path / "page.py").write_text("\n".join(others), encoding="utf-8")
        commands.append("python page.py")
    assert commands
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as rays:  # sockets want short paths
        for command in commands:
            run(
                ["sh", "-c", command],
                folder=tmp_path,
                environment={"RAY_TMPDIR": rays, "RAY_USAGE_STATS_ENABLED": "0"},
            )
