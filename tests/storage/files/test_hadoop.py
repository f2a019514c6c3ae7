"""Tests of Hadoop configuration: HDFS URLs find their name nodes, and missing settings are reported."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry

from petastore.errors import InvalidArgumentError
from petastore.storage.files.hadoop import configuration, hdfs_options
from petastore.storage.files.location import open_location

HA = {
    "dfs.nameservices": "near, far",
    "dfs.ha.namenodes.near": "nn1, nn2",
    "dfs.namenode.rpc-address.near.nn1": "one.example:8020",
    "dfs.namenode.rpc-address.near.nn2": "two.example:8020",
    "dfs.namenode.rpc-address.far": "far.example:8020",
}
NEAR = {
    "dfs.nameservices": "near, far",
    "dfs.ha.namenodes.near": "nn1,nn2",
    "dfs.namenode.rpc-address.near.nn1": "one.example:8020",
    "dfs.namenode.rpc-address.near.nn2": "two.example:8020",
    "dfs.client.failover.proxy.provider.near": (
        "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
    ),
}
FAR = {"dfs.nameservices": "near, far", "dfs.namenode.rpc-address.far": "far.example:8020"}


def write(folder: Path, name: str, settings: Mapping[str, str]) -> None:
    pairs = "".join(
        f"<property><name>{key}</name><value> {value} </value></property>" for key, value in settings.items()
    )
    (folder / name).write_text(f'<?xml version="1.0"?>\n<configuration>{pairs}</configuration>')


def test_later_hadoop_files_override_and_variables_are_substituted(tmp_path: Path) -> None:
    write(tmp_path, "core-site.xml", {"fs.defaultFS": "hdfs://${name}", "name": "near", "x": "${env.WHO}${none}"})
    write(tmp_path, "hdfs-site.xml", {"name": "far"})
    found = configuration({"HADOOP_CONF_DIR": str(tmp_path), "WHO": "me"})
    assert found == {"fs.defaultFS": "hdfs://far", "name": "far", "x": "me${none}"}


def test_recursive_hadoop_variables_end(tmp_path: Path) -> None:
    write(tmp_path, "core-site.xml", {"a": "${b}", "b": "${a}"})
    assert set(configuration({"HADOOP_CONF_DIR": str(tmp_path)})) == {"a", "b"}


def test_hadoop_configuration_is_found_below_hadoop_home(tmp_path: Path) -> None:
    (tmp_path / "etc" / "hadoop").mkdir(parents=True)
    write(tmp_path / "etc" / "hadoop", "core-site.xml", {"a": "b"})
    assert configuration({"HADOOP_HOME": str(tmp_path)}) == {"a": "b"}
    assert configuration({}) == {}


@pytest.mark.parametrize("text", ["<configuration>", '<!DOCTYPE x [<!ENTITY a "b">]><configuration/>'])
def test_invalid_hadoop_configuration_raises(tmp_path: Path, text: str) -> None:
    (tmp_path / "core-site.xml").write_text(text)
    with pytest.raises(InvalidArgumentError, match=re.escape(str(tmp_path / "core-site.xml"))):
        configuration({"HADOOP_CONF_DIR": str(tmp_path)})


@pytest.mark.parametrize(
    ("url", "settings", "options"),
    [
        ("hdfs://host/x", {}, {"host": "host", "port": 0}),
        ("hdfs://host:9000/x", HA, {"host": "host", "port": 9000}),
        ("hdfs:///x", {}, {"host": "default", "port": 0}),
        ("hdfs://near/x", HA, {"host": "near", "port": 0, "extra_conf": NEAR}),
        ("hdfs://me@far/x", HA, {"host": "far", "port": 0, "user": "me", "extra_conf": FAR}),
        ("hdfs:///x", {**HA, "fs.defaultFS": "hdfs://near"}, {"host": "near", "port": 0, "extra_conf": NEAR}),
        ("hdfs:///x", {"fs.default.name": "hdfs://old:8020/"}, {"host": "old", "port": 8020}),
        (
            "viewfs:///x",
            {**HA, "fs.defaultFS": "viewfs://all", "fs.viewfs.mounttable.all.link./a": "hdfs://near/a"},
            {
                "host": "viewfs://all", "port": 0,
                "extra_conf": {"fs.viewfs.mounttable.all.link./a": "hdfs://near/a", **NEAR, **FAR},
            },
        ),
    ],
)  # fmt: skip
def test_hdfs_url_resolves_to_options_of_libhdfs(url: str, settings: dict[str, str], options: dict[str, Any]) -> None:
    assert hdfs_options(url, settings) == options


def test_missing_hadoop_configuration_is_reported() -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"must have dfs\.namenode\.rpc-address\.near\.nn2 for the nameservice near"
    ):
        hdfs_options("hdfs://near/x", {**HA, "dfs.namenode.rpc-address.near.nn2": ""})
    with pytest.raises(InvalidArgumentError, match="default file system is viewfs://all in Hadoop's configuration"):
        hdfs_options("hdfs:///x", {"fs.defaultFS": "viewfs://all"})


class Told(MemoryFileSystem):  # type: ignore[misc]
    """A filesystem that records its constructor arguments."""

    protocol = "hdfs"
    cachable = False
    told: dict[str, Any]

    def __init__(self, **options: Any) -> None:
        Told.told = options
        super().__init__()


@pytest.fixture
def _hdfs() -> Iterator[None]:
    before = _registry.get("hdfs")
    fsspec.register_implementation("hdfs", Told, clobber=True)
    yield
    del _registry["hdfs"]
    if before is not None:
        _registry["hdfs"] = before


@pytest.mark.usefixtures("_hdfs")
@pytest.mark.parametrize(("url", "host"), [("hdfs://near/x", "near"), ("viewfs://near/x", "viewfs://near")])
def test_hdfs_nameservice_is_found_by_the_environment(
    url: str, host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "hdfs-site.xml", HA)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert open_location(url, storage_options={"user": "me"}).url == url
    assert (Told.told["host"], Told.told["user"]) == (host, "me")
    assert NEAR.items() <= Told.told["extra_conf"].items()
