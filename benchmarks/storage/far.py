"""Remote files: an S3 server in its own process, behind proxies that are slow or unreliable."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

from tests.servers.child import child_server
from tests.servers.fault_proxy import FaultProxy, Faults

__all__ = ["ENVIRONMENT_KEYS", "Bench", "Line"]

_KEYS = {"key": "AKIAEXAMPLE", "secret": "hush"}
ENVIRONMENT_KEYS = {
    "AWS_ACCESS_KEY_ID": _KEYS["key"],
    "AWS_SECRET_ACCESS_KEY": _KEYS["secret"],
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_ALLOW_HTTP": "true",
}


class Line:
    """A proxy before the server; what passes is counted here."""

    def __init__(self, port: int, faults: Faults) -> None:
        self._proxy = FaultProxy(port, faults)

    @property
    def url(self) -> str:
        """Where S3 is reached."""
        return self._proxy.url

    @property
    def options(self) -> dict[str, Any]:
        """`storage_options` of who reads over this line."""
        return {**_KEYS, "endpoint_url": self.url, "client_kwargs": {"region_name": "us-east-1"}}

    @property
    def environment(self) -> dict[str, str]:
        """The same for loaders that look into the environment."""
        return {**ENVIRONMENT_KEYS, "AWS_ENDPOINT_URL": self.url, "S3_ENDPOINT_URL": self.url}

    @property
    def counted(self) -> tuple[int, int]:
        """Requests, and bytes of answers, so far."""
        return self._proxy.counted.requests, self._proxy.counted.bytes

    @property
    def faults(self) -> dict[str, int]:
        """How often each fault was made."""
        return dict(self._proxy.counted.faults)

    def close(self) -> None:
        """From now on nobody answers."""
        self._proxy.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclasses.dataclass(frozen=True)
class Bench:
    """Where data lie, and how much is done.

    Args:
        folder: Keeps data and environments.
        rounds: Of each figure that is a time.
        scale: Share of the rows.
    """

    folder: Path
    rounds: int = 3
    scale: float = 1.0

    @property
    def buckets(self) -> Path:
        """Folders in it are buckets of the server."""
        return self.folder / (f"s3-{self.scale:g}" if self.scale != 1.0 else "s3")

    def made(self, name: str, recipe: str, make: Callable[[Path], object]) -> Path:
        """A folder with data, made unless it is there and of the same recipe."""
        folder = self.buckets / name
        said = self.folder / "made" / self.buckets.name / f"{name.replace('/', '-')}.recipe"
        if not said.exists() or said.read_text(encoding="utf-8") != recipe:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            make(folder)
            said.parent.mkdir(parents=True, exist_ok=True)
            said.write_text(recipe, encoding="utf-8")
        return folder

    @contextlib.contextmanager
    def line(self, *known_buckets: str, **faults: float) -> Iterator[Line]:
        """A line to the data, with such faults; the server has looked through some buckets, as a store has."""
        known: dict[str, Any] = faults
        with child_server("tests.servers.s3_server", str(self.buckets)) as port, Line(port, Faults(**known)) as line:
            for (
                bucket
            ) in known_buckets:  # otherwise the first request waits until the server has read all files for their etags
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/{bucket}?list-type=2", timeout=600) as listing:
                    listing.read()
            yield line
