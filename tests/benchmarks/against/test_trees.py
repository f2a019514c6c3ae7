"""Tests of compared source trees: an exported commit, or a copy of the working tree."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

from benchmarks.against.trees import NoSuchCommitError, checked_out, exported


def git(repository: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", *arguments],
        cwd=repository, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a repository with two commits, an uncommitted change and an untracked file."""
    root = tmp_path / "checkout"
    (root / "petastore" / "__pycache__").mkdir(parents=True)
    (root / "petastore" / "__pycache__" / "stale.pyc").write_bytes(b"stale")
    (root / "benchmarks").mkdir()
    (root / "benchmarks" / "bench.py").write_text("version = 3\n", encoding="utf-8")
    (root / ".gitignore").write_text("__pycache__/\n", encoding="utf-8")
    init = root / "petastore" / "__init__.py"
    git(root, "init", "-q", "-b", "trunk")
    for version in (1, 2):
        init.write_text(f"version = {version}\n", encoding="utf-8")
        git(root, "add", "-A")
        git(root, "commit", "-qm", f"version {version}")
    init.write_text("version = 3\n", encoding="utf-8")
    (root / "petastore" / "new.py").write_text("", encoding="utf-8")
    return root


def version(root: Path) -> str:
    return (root / "petastore" / "__init__.py").read_text(encoding="utf-8").strip()


def test_commit_is_exported_with_the_benchmarks_of_the_working_tree(checkout: Path, tmp_path: Path) -> None:
    tree = exported(checkout, "HEAD~1", tmp_path / "that")
    assert version(tree.root) == "version = 1"
    assert tree.name == git(checkout, "rev-parse", "--short=7", "HEAD~1")
    assert (tree.root / "benchmarks" / "bench.py").read_text(encoding="utf-8") == "version = 3\n"
    assert version(exported(checkout, "trunk", tmp_path / "trunk").root) == "version = 2"


def test_copy_of_the_working_tree_includes_uncommitted_changes(checkout: Path, tmp_path: Path) -> None:
    tree = checked_out(checkout, tmp_path / "this")
    assert version(tree.root) == "version = 3"
    assert (tree.root / "petastore" / "new.py").exists()
    assert not (tree.root / "petastore" / "__pycache__" / "stale.pyc").exists()


def test_trees_are_compiled_before_measuring(checkout: Path, tmp_path: Path) -> None:
    for tree in (checked_out(checkout, tmp_path / "this"), exported(checkout, "trunk", tmp_path / "that")):
        assert Path(importlib.util.cache_from_source(tree.root / "petastore" / "__init__.py")).exists()


def test_equal_source_trees_have_equal_digests(checkout: Path, tmp_path: Path) -> None:
    first = exported(checkout, "trunk", tmp_path / "1").digest
    assert exported(checkout, "HEAD", tmp_path / "2").digest == first
    assert exported(checkout, "HEAD~1", tmp_path / "3").digest != first
    assert checked_out(checkout, tmp_path / "4").digest != first
    git(checkout, "stash", "-q", "--include-untracked")
    assert checked_out(checkout, tmp_path / "5").digest == first


@pytest.mark.parametrize("commit", ["no-such-branch", "HEAD~9", "--all", "HEAD:petastore"])
def test_unknown_commit_raises_with_the_message_of_git(commit: str, checkout: Path, tmp_path: Path) -> None:
    with pytest.raises(NoSuchCommitError, match="fatal:"):
        exported(checkout, commit, tmp_path / "that")
