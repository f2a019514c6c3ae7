"""Settings of libhdfs for HDFS URLs, from the Hadoop configuration.

These are the default filesystem and the nameservices. libhdfs finds Hadoop's configuration only through CLASSPATH, and
otherwise reports "UnknownHost". This module therefore reads the files from HADOOP_CONF_DIR, and passes the settings of
a nameservice to libhdfs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

from petastore.errors import InvalidArgumentError

__all__ = ["configuration", "hdfs_options"]

_FILES = ("core-site.xml", "hdfs-site.xml")  # later files override earlier ones
_MOST_BYTES = 16 * 1024 * 1024
_MOST_TURNS = 20  # Hadoop's own bound on nested variables
_VARIABLE = re.compile(r"\$\{([^${}]+)\}")
_PROVIDER = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"


def configuration(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return Hadoop's configuration, as a dict from property name to value.

    Variables in values are resolved. The dict is empty if Hadoop is not configured.

    Args:
        environment: Environment variables; `HADOOP_CONF_DIR` or `HADOOP_HOME` names the folder.

    Raises:
        InvalidArgumentError: A configuration file cannot be read.
    """
    home = environment.get("HADOOP_HOME")
    folder = environment.get("HADOOP_CONF_DIR") or (f"{home}/etc/hadoop" if home else "")
    properties: dict[str, str] = {}
    for name in _FILES if folder else ():
        properties.update(_properties(Path(folder) / name))
    return {name: _filled(value, properties, environment) for name, value in properties.items()}


def _properties(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES or b"<!ENTITY" in text:
            raise InvalidArgumentError(
                f"{path} must be a Hadoop configuration, got a file that is too large or defines XML entities"
            )
        root = ET.fromstring(text)  # noqa: S314 - of limited size, without entities
    except (OSError, ET.ParseError) as problem:
        raise InvalidArgumentError(
            f"{path}, which is part of Hadoop's configuration, cannot be read: {problem}"
        ) from None
    pairs = ((one.findtext("name"), one.findtext("value")) for one in root.iter("property"))
    return {name.strip(): (value or "").strip() for name, value in pairs if name}


def _filled(value: str, properties: Mapping[str, str], environment: Mapping[str, str]) -> str:
    for _ in range(_MOST_TURNS):
        filled = _VARIABLE.sub(lambda match: _value_of(match, properties, environment), value)
        if filled == value:
            break
        value = filled
    return value


def _value_of(match: re.Match[str], properties: Mapping[str, str], environment: Mapping[str, str]) -> str:
    name = match[1]
    if name.startswith("env."):
        return environment.get(name[4:], match[0])
    return properties.get(name, match[0])


def hdfs_options(url: str, settings: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of fsspec's HDFS filesystem for a URL.

    Args:
        url: `hdfs://host:8020/path`, `hdfs://nameservice/path` or `viewfs://cluster/path`; a URL without host and
            nameservice uses the default filesystem.
        settings: Hadoop's configuration.

    Raises:
        InvalidArgumentError: The default filesystem is not HDFS, or a nameservice is only partly configured.

    Example:
        >>> hdfs_options("hdfs://me@host:8020/frames", {})
        {'host': 'host', 'port': 8020, 'user': 'me'}
        >>> hdfs_options("hdfs:///frames", {"fs.defaultFS": "hdfs://host:9000"})
        {'host': 'host', 'port': 9000}
        >>> hdfs_options("viewfs://all/frames", {})
        {'host': 'viewfs://all', 'port': 0}
    """
    parts = urlsplit(url)
    scheme, place = parts.scheme.lower(), parts.netloc.rpartition("@")[2]
    if not place:
        default = settings.get("fs.defaultFS") or settings.get("fs.default.name")
        if default is None:
            return {"host": "default", "port": 0}
        given = urlsplit(default)
        if given.scheme != scheme or not given.netloc:
            raise InvalidArgumentError(
                f"the URL must have a host, because the default file system is {default} in Hadoop's configuration, "
                f"got {scheme}://. Name the host or the nameservice: {scheme}://HOST/…"
            )
        place = given.netloc
    host, _, port = place.partition(":")
    options: dict[str, Any] = {"host": host if scheme == "hdfs" else f"viewfs://{host}", "port": int(port or 0)}
    if parts.username:
        options["user"] = parts.username
    names = [name.strip() for name in settings.get("dfs.nameservices", "").split(",")]
    needed = _mounts(host, settings) if scheme == "viewfs" else {}
    # The links of a ViewFs may point to any nameservice, so the settings of all are passed.
    for name in names if scheme == "viewfs" else [one for one in names if one == host and not port]:
        needed.update(_nameservice(name, settings) if name else {})
    return {**options, "extra_conf": needed} if needed else options


def _mounts(name: str, settings: Mapping[str, str]) -> dict[str, str]:
    start = f"fs.viewfs.mounttable.{name}."
    return {key: value for key, value in settings.items() if key.startswith(start)}


def _nameservice(name: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the client settings of a nameservice: its name nodes, and how to find the active name node."""
    nodes = [node.strip() for node in settings.get(f"dfs.ha.namenodes.{name}", "").split(",") if node.strip()]
    keys = [f"dfs.namenode.rpc-address.{name}.{node}" for node in nodes] or [f"dfs.namenode.rpc-address.{name}"]
    missing = [key for key in keys if not settings.get(key)]
    if missing:
        raise InvalidArgumentError(
            f"Hadoop's configuration (HADOOP_CONF_DIR) must have {missing[0]} for the nameservice {name}"
        )
    options = {"dfs.nameservices": settings["dfs.nameservices"], **{key: settings[key] for key in keys}}
    if nodes:
        provider = f"dfs.client.failover.proxy.provider.{name}"
        options[f"dfs.ha.namenodes.{name}"] = ",".join(nodes)
        options[provider] = settings.get(provider, _PROVIDER)
    return options
