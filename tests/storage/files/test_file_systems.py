"""One URL becomes a filesystem and a path in it, whatever its scheme and spelling."""

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
def test_every_spelling_of_a_local_directory_is_the_same_place(tmp_path: Path, spelling: str) -> None:
    location = open_location(spelling.format(tmp_path))
    assert isinstance(location.filesystem, fs.LocalFileSystem)
    assert location.root == str(tmp_path)
    assert location.url == f"file://{tmp_path}"
    assert location.paths is None


def test_a_file_url_with_two_slashes_says_what_to_write() -> None:
    with pytest.raises(InvalidArgumentError, match="write file:///data/x"):
        open_location("file://data/x")


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="nosuch"):
        open_location("nosuch://bucket/x")


def test_percent_signs_in_file_urls_are_literal_unless_only_the_decoded_path_exists(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    url = (tmp_path / "a b").as_uri()
    assert url.endswith("a%20b")
    assert open_location(url).root == str(tmp_path / "a b")
    (tmp_path / "a%20b").mkdir()
    assert open_location(url).root == str(tmp_path / "a%20b")


def test_s3a_and_s3n_are_s3() -> None:
    options = {"key": "k", "secret": "s"}
    places = [
        open_location([f"{scheme}://b/x", f"{scheme}://b/y"], storage_options=options)
        for scheme in ("s3", "s3a", "s3n")
    ]
    assert {place.root for place in places} == {"b"}
    assert len({str(place.filesystem.type_name) for place in places}) == 1
    assert not places[0].has_cheap_rename


def test_webhdfs_is_told_host_port_and_user() -> None:
    location = open_location(["webhdfs://me@node:9870/data/a", "webhdfs://me@node:9870/data/b"])
    assert (location.root, location.paths) == ("/data", ("a", "b"))
    assert location.store.url == "http://node:9870/webhdfs/v1"
    assert location.store.pars == {"user.name": "me"}


def test_a_missing_backend_names_the_extra() -> None:
    script = (
        "import sys; sys.modules['s3fs'] = None\n"
        "from petastore.storage.files.location import open_location\n"
        "from petastore.errors import MissingExtraError\n"
        "try: open_location('s3://bucket/x')\n"
        "except MissingExtraError as problem: print(problem)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "pip install 'petastore[s3]'" in ended.stdout
    assert "s3fs" in ended.stdout


def test_a_given_filesystem_wins_over_the_scheme(tmp_path: Path) -> None:
    below = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    assert open_location("s3://bucket/x", filesystem=below).root == "bucket/x"
    assert open_location("plain/x/", filesystem=below).root == "plain/x"
    memory = fsspec.filesystem("memory")
    assert open_location("/plain/x", filesystem=memory).root == "/plain/x"
    assert isinstance(open_location(tmp_path, filesystem=fsspec.filesystem("file")).filesystem, fs.LocalFileSystem)


def test_what_is_no_filesystem_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="pyarrow or fsspec"):
        open_location("/data", filesystem="s3")
