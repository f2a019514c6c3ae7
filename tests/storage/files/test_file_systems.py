"""Tests of resolving a URL to a filesystem and a path: schemes, spellings, missing packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import fsspec
import pytest
from pyarrow import fs

from petastore.errors import InvalidArgumentError
from petastore.storage.files.location import open_location


@pytest.mark.parametrize("spelling", ["{}", "file://{}", "file:{}", "file://localhost{}", "{}/", "file://{}/"])
def test_spellings_of_a_local_directory_are_one_location(tmp_path: Path, spelling: str) -> None:
    location = open_location(spelling.format(tmp_path))
    assert isinstance(location.filesystem, fs.LocalFileSystem)
    assert location.root == str(tmp_path)
    assert location.url == f"file://{tmp_path}"
    assert location.paths is None


def test_file_url_with_two_slashes_raises_with_the_correct_form() -> None:
    with pytest.raises(InvalidArgumentError, match=r"got file://data/x\. Write file:///data/x"):
        open_location("file://data/x")


def test_unknown_scheme_raises() -> None:
    for url in ("nosuch://bucket/x", "simplecache::nosuch://bucket/x"):
        with pytest.raises(InvalidArgumentError, match=rf"a scheme such as s3, .*, got {url}\. Correct the scheme"):
            open_location(url)


def test_percent_sign_in_a_file_url_is_literal_if_that_path_exists(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    url = (tmp_path / "a b").as_uri()
    assert url.endswith("a%20b")
    assert open_location(url).root == str(tmp_path / "a b")
    (tmp_path / "a%20b").mkdir()
    assert open_location(url).root == str(tmp_path / "a%20b")


def test_s3a_and_s3n_urls_are_s3() -> None:
    options = {"key": "k", "secret": "s"}
    places = [
        open_location([f"{scheme}://b/x", f"{scheme}://b/y"], storage_options=options)
        for scheme in ("s3", "s3a", "s3n")
    ]
    assert {place.root for place in places} == {"b"}
    assert len({str(place.filesystem.type_name) for place in places}) == 1
    assert not places[0].store.has_cheap_rename


def test_webhdfs_url_sets_host_port_and_user() -> None:
    location = open_location(["webhdfs://me@node:9870/data/a", "webhdfs://me@node:9870/data/b"])
    assert (location.root, location.paths) == ("/data", ("a", "b"))
    assert location.filesystem.fs.url == "http://node:9870/webhdfs/v1"
    assert location.filesystem.fs.pars == {"user.name": "me"}


def test_scheme_without_its_package_raises_with_its_name() -> None:
    script = (
        "import sys; sys.modules['huggingface_hub'] = None\n"
        "from petastore.storage.files.location import open_location\n"
        "from petastore.errors import MissingExtraError\n"
        "try: open_location('hf://datasets/user/name')\n"
        "except MissingExtraError as problem: print(problem)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "pip install huggingface_hub" in ended.stdout


def test_azure_urls_have_container_and_account() -> None:
    location = open_location(
        [f"abfss://data@me.dfs.core.windows.net/{name}" for name in ("x", "y")], storage_options={"anon": True}
    )
    assert (location.root, location.paths) == ("data", ("x", "y"))
    assert location.store.server == ("abfs", "https://me.blob.core.windows.net")


def test_given_filesystem_takes_precedence_over_the_scheme(tmp_path: Path) -> None:
    below = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    assert open_location("s3://bucket/x", filesystem=below).root == "bucket/x"
    assert open_location("plain/x/", filesystem=below).root == "plain/x"
    memory = fsspec.filesystem("memory")
    assert open_location("/plain/x", filesystem=memory).root == "/plain/x"
    assert isinstance(open_location(tmp_path, filesystem=fsspec.filesystem("file")).filesystem, fs.LocalFileSystem)


def test_invalid_filesystem_raises() -> None:
    with pytest.raises(InvalidArgumentError, match="pyarrow or fsspec"):
        open_location("/data", filesystem="s3")
