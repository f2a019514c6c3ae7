"""Tests of host names: an unknown host raises at once, and a temporary DNS failure is retried."""

from __future__ import annotations

import collections
import socket
import uuid
from typing import Any

import fsspec
import pytest

import petastore
from petastore.errors import StorageConnectionError
from tests.servers.fixtures import MOTO_KEYS, Served

pytestmark = [
    pytest.mark.server,
    pytest.mark.leaves_running("fsspec keeps its web session, and clients of clouds theirs"),
]
NOWHERE, LATER = "no-such-host.example", "ask-again.example"


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> collections.Counter[str]:
    """Count DNS lookups by name; one name does not exist, and another fails twice with a temporary error."""
    looked_up, look_up = collections.Counter[str](), socket.getaddrinfo

    def found(host: Any, *asked: Any, **more: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else str(host)
        looked_up[name] += 1
        if name.endswith(NOWHERE):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        if name == LATER and looked_up[name] <= 2:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return look_up("127.0.0.1" if name == LATER else host, *asked, **more)

    monkeypatch.setattr(socket, "getaddrinfo", found)
    fsspec.filesystem("http").clear_instance_cache()
    return looked_up


@pytest.mark.parametrize(
    ("url", "options"),
    [
        (f"http://{NOWHERE}/frames/a.parquet", {}),
        (f"https://{NOWHERE}/frames/a.parquet", {}),
        ("s3://bucket/frames", {**MOTO_KEYS, "endpoint_url": f"https://{NOWHERE}"}),
        ("s3://bucket/frames/*.parquet", {**MOTO_KEYS, "client_kwargs": {"endpoint_url": f"http://{NOWHERE}:9000"}}),
    ],
)
def test_unknown_host_raises_at_once(names: collections.Counter[str], url: str, options: dict[str, Any]) -> None:
    with pytest.raises(StorageConnectionError, match=rf"{NOWHERE}.*The host name does not exist\. Check") as told:
        petastore.open_dataset(url, storage_options=options)
    assert "it was tried" not in str(told.value)
    assert sum(names.values()) <= 4


def test_unresolved_host_name_is_looked_up_again(names: collections.Counter[str], served: Served) -> None:
    name = f"{uuid.uuid4().hex}.parquet"
    schema = petastore.Unischema("Numbers", [petastore.UnischemaField("id", "int64")])
    petastore.write_dataset(str(served.root / name), schema, [{"id": 7}])
    (path,) = (served.root / name).glob("*.parquet")
    web = fsspec.filesystem("http")  # not obstore, which resolves names without Python
    with petastore.make_reader(f"http://{LATER}:{served.port}/{name}/{path.name}", filesystem=web) as reader:
        assert [row.id for row in reader] == [7]
    assert names[LATER] >= 3
