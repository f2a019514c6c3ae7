"""Run documentation pages whose programs need engines, in the way that their readers would."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from neighbours.conftest import REPOSITORY, Run

__all__ = ["marked_pages", "run_page"]

MARK = "<!-- needs: neighbours -->"
PROGRAM = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMANDS = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"# ([\w./]+\.py)\n")


def marked_pages(*, horovod: bool) -> list[str]:
    """Return the pages that are marked as needing engines: those about Horovod, or all others."""
    docs = REPOSITORY / "docs"
    pages = [page for page in sorted(docs.rglob("*.md")) if MARK in page.read_text(encoding="utf-8")]
    return [page.relative_to(docs).as_posix() for page in pages if ("horovod" in page.name) == horovod]


def run_page(page: str, folder: Path, run: Run) -> None:
    """Run the programs of a page in a folder.

    Programs with names are saved, and run by the page's commands. All other blocks together are one program.
    """
    text = (REPOSITORY / "docs" / page).read_text(encoding="utf-8")
    named = {found[1]: block for block in PROGRAM.findall(text) if (found := NAME.match(block)) is not None}
    others = [block for block in PROGRAM.findall(text) if NAME.match(block) is None]
    for name, block in named.items():
        (folder / name).write_text(block, encoding="utf-8")
    commands = [line for block in COMMANDS.findall(text) for line in block.splitlines()] if named else []
    assert len(commands) >= bool(named)
    if others:
        (folder / "page.py").write_text("\n".join(others), encoding="utf-8")
        commands.append("python page.py")
    assert commands
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as rays:  # sockets need short paths
        for command in commands:
            run(
                ["sh", "-c", command],
                folder=folder,
                environment={"RAY_TMPDIR": rays, "RAY_USAGE_STATS_ENABLED": "0"},
            )
