"""Tests of `petastore view`: it prints the address of a page, and serves it until Ctrl-C."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
import webbrowser
from pathlib import Path

import pytest

from petastore import write_dataset
from petastore.view import Viewer
from tests.cli.command import petastore
from tests.interrupts import interruptible


@pytest.fixture
def url(tmp_path: Path) -> str:
    write_dataset(str(tmp_path / "words"), {"word": ["a", "b"]})
    return str(tmp_path / "words")


def test_view_serves_the_page_until_interrupted(url: str) -> None:
    command = [sys.executable, "-W", "error", "-m", "petastore.cli", "view", url, "--no-browser"]
    with interruptible():
        ran = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)
    with ran:
        assert ran.stdout is not None
        address = ran.stdout.readline().strip()
        with urllib.request.urlopen(address, timeout=60) as answer:  # noqa: S310 - printed by us
            assert answer.status == 200
        ran.send_signal(signal.SIGINT)
        out, err = ran.communicate(timeout=60)
    assert (ran.returncode, out, err) == (0, "", "")


def test_view_opens_a_browser_at_its_address(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr(Viewer, "wait", lambda _: None)
    ran = petastore("view", url)
    assert (ran.exit_code, ran.stdout.split(), ran.stderr) == (0, opened, "")
    assert opened[0].startswith("http://127.0.0.1:")


def test_view_raises_a_usage_error_when_the_port_is_in_use(url: str) -> None:
    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        used.listen()
        ran = petastore("view", url, "--no-browser", "--port", str(used.getsockname()[1]))
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert "port must be free" in ran.stderr
