"""Tests of the viewer's server: port, shutdown, and missing packages."""

from __future__ import annotations

import importlib.util
import logging
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
import uvicorn

from petastore import open_dataset, write_dataset
from petastore.errors import InvalidArgumentError, MissingExtraError
from petastore.view import Viewer, serve
from tests.interrupts import interruptible
from tests.view.browsing import Client


@pytest.fixture
def url(tmp_path: Path) -> str:
    write_dataset(str(tmp_path / "words"), {"word": ["a", "b"]})
    return str(tmp_path / "words")


def test_viewer_binds_to_loopback_and_frees_its_port_on_close(url: str) -> None:
    with serve(open_dataset(url)) as viewer:
        assert viewer.url.startswith(f"http://127.0.0.1:{viewer.port}/?token=")
        assert Client(viewer).get("").status == 200
        with pytest.raises(InvalidArgumentError, match="port must be free"):
            serve(url, port=viewer.port)
    viewer.close()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", viewer.port)) != 0
    with serve(url, port=viewer.port) as again:
        assert again.url != viewer.url


def test_viewer_can_be_closed_at_once(url: str) -> None:
    serve(url).close()


def test_viewer_wait_returns_when_another_thread_closes_it(url: str) -> None:
    viewer = serve(url)
    closing = threading.Timer(0.1, viewer.close)
    closing.start()
    viewer.wait()
    closing.join()


@pytest.mark.parametrize("package", ["starlette", "uvicorn", "jinja2"])
def test_viewer_without_its_packages_names_the_extra(url: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def without(name: str, *rest: Any) -> Any:
        return None if name == package else find(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    with pytest.raises(MissingExtraError, match=r"pip install 'petastore\[view\]'"):
        serve(url)


def test_viewer_leaves_log_handlers_of_the_program_open(url: str) -> None:
    closed: list[str] = []

    class Noted(logging.Handler):
        def close(self) -> None:
            closed.append("closed")
            super().close()

    handler = Noted()
    try:
        with serve(url):
            assert closed == []
    finally:
        handler.close()


def interrupt_the_wait() -> None:
    """Send Ctrl-C to the main thread as soon as it waits for the end of the viewer."""
    main = threading.main_thread().ident
    assert main is not None
    while Viewer.wait.__code__ not in codes_of(main):
        time.sleep(0.001)
    time.sleep(0.1)  # until it is blocked, where an interrupted `join` would take the server for ended
    signal.pthread_kill(main, signal.SIGINT)


def codes_of(thread: int) -> set[CodeType]:
    """Return the code objects of the functions that a thread is running."""
    frame, codes = sys._current_frames().get(thread), set()
    while frame is not None:
        codes.add(frame.f_code)
        frame = frame.f_back
    return codes


def test_close_after_ctrl_c_waits_for_the_end_of_the_server(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run, ended = uvicorn.Server.run, threading.Event()

    def run_and_linger(server: uvicorn.Server, **sockets: Any) -> None:
        run(server, **sockets)
        time.sleep(0.2)  # long enough that a `close` without waiting would have returned
        ended.set()

    monkeypatch.setattr(uvicorn.Server, "run", run_and_linger)
    with serve(url) as viewer, interruptible():
        threading.Thread(target=interrupt_the_wait).start()
        with pytest.raises(KeyboardInterrupt):
            viewer.wait()
        assert not ended.is_set()
    assert ended.is_set()
