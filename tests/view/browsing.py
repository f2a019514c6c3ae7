"""Client of the viewer that stores cookies like a browser, and Chromium if it is installed."""

from __future__ import annotations

import dataclasses
import http.client
import os
import shutil
import subprocess
import urllib.parse
from pathlib import Path

from petastore.view import Viewer

__all__ = ["Answer", "Client", "chromium", "dom_of"]

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--virtual-time-budget=4000", "--dump-dom"),
)


@dataclasses.dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


class Client:
    """A client with the cookie of a viewer."""

    def __init__(self, viewer: Viewer) -> None:
        self.port = viewer.port
        self.token = urllib.parse.parse_qs(urllib.parse.urlsplit(viewer.url).query)["token"][0]
        self.cookie = f"petastore-view-{self.port}={self.token}"

    def request(self, path: str, *, method: str = "GET", **headers: str) -> Answer:
        """Send a request as it is, without a cookie."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            return Answer(
                response.status, {key.lower(): value for key, value in response.getheaders()}, response.read()
            )
        finally:
            connection.close()

    def get(self, path: str, **query: object) -> Answer:
        """Get a page with the cookie."""
        text = f"?{urllib.parse.urlencode(query)}" if query else ""
        return self.request(f"/{path}{text}", Cookie=self.cookie)


def chromium() -> str | None:
    """Return the path of Chromium or Chrome: the value of `CHROMIUM`, or the first on PATH."""
    named = os.environ.get("CHROMIUM")
    return shutil.which(named) if named else next(filter(None, map(shutil.which, BROWSERS)), None)


def dom_of(url: str, profile: Path) -> str:
    """Return the document at a URL after its scripts ran, if the page permits scripts."""
    browser = chromium()
    assert browser is not None
    ran = subprocess.run(
        [browser, *OPTIONS, f"--user-data-dir={profile}", url], capture_output=True, text=True, check=True, timeout=100
    )
    return ran.stdout
