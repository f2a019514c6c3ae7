"""Local web server of the viewer, in a thread.

It is bound to 127.0.0.1, and its URL has a random token.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import socket
import threading
from collections.abc import Mapping
from typing import Any, Self

from petastore.dataset import Dataset, open_dataset
from petastore.errors import InvalidArgumentError, MissingExtraError
from petastore.readers.reader import Reader

__all__ = ["Viewer", "serve"]

_HOST = "127.0.0.1"
_PACKAGES = ("starlette", "uvicorn", "jinja2")


def serve(
    dataset: str | os.PathLike[str] | Dataset | Reader,
    *,
    port: int = 0,
    storage_options: Mapping[str, Any] | None = None,
) -> Viewer:
    """Start a local web page about a dataset or a running reader, and return at once.

    Only this machine can open the page, and only with the token in its URL.

    Args:
        dataset: URL of a dataset, or an open `Dataset`. A `Reader` shows its dataset and its live metrics.
        port: Port on 127.0.0.1; 0 takes a free one.
        storage_options: As for `open_dataset`, with a URL.

    Raises:
        MissingExtraError: A package of the extra `view` is not installed.
        InvalidArgumentError: The port is not free.
        PetastoreError: The dataset cannot be opened.

    Example:
        >>> import tempfile, petastore
        >>> url = tempfile.mkdtemp() + "/words"
        >>> _ = petastore.write_dataset(url, {"word": ["a", "b"]})
        >>> with serve(url) as viewer:
        ...     viewer.url.startswith("http://127.0.0.1:")
        True
    """
    for package in _PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError("the viewer", package=package, extra="view")
    reader = dataset if isinstance(dataset, Reader) else None
    if isinstance(dataset, Reader):
        opened = dataset.dataset.datasets[0]
    else:
        opened = dataset if isinstance(dataset, Dataset) else open_dataset(dataset, storage_options=storage_options)
    return Viewer(opened, reader, port)


class Viewer:
    """A running web page; close it, or use it in a `with` block.

    Args:
        dataset: The dataset to show.
        reader: Reader whose metrics are shown; None shows none.
        port: Port on 127.0.0.1; 0 takes a free one.
    """

    def __init__(self, dataset: Dataset, reader: Reader | None, port: int) -> None:
        # Imported here, because these packages are optional; `serve` has checked that they are installed.
        import uvicorn

        from petastore.view.app import make_app

        token = secrets.token_urlsafe(24)
        self._socket = _bound(port)
        self.port: int = self._socket.getsockname()[1]
        """Port of the page."""
        self.url = f"http://{_HOST}:{self.port}/?token={token}"
        """URL of the page, with its token."""
        # The access log would have the token; uvicorn's log_config would close the log handlers of the program.
        config = uvicorn.Config(
            make_app(dataset, reader, token=token, port=self.port),
            access_log=False, log_config=None, log_level="warning", server_header=False, proxy_headers=False,
            lifespan="off", ws="none", http="h11", loop="asyncio", timeout_graceful_shutdown=1,
        )  # fmt: skip
        self._server, self._ended = uvicorn.Server(config), threading.Event()
        self._thread = threading.Thread(target=self._run, name="petastore-view", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._ended.set()

    def wait(self) -> None:
        """Wait until the page is closed, such as by another thread."""
        # Not `join`: before Python 3.13, a thread whose `join` is interrupted by Ctrl-C counts as ended.
        self._ended.wait()

    def close(self) -> None:
        """Stop the server. May be called repeatedly."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Viewer(port={self.port})"


def _bound(port: int) -> socket.socket:
    """Return a listening socket, so that a browser can connect before the server runs."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((_HOST, port))
        listening.listen()
    except (OSError, OverflowError) as problem:
        listening.close()
        raise InvalidArgumentError(f"port must be free and at most 65535, got {port}: {problem}. Use port 0") from None
    return listening
