"""What file systems of fsspec list is told with the version of each file, and asked for anew where that is needed."""

from __future__ import annotations

import fsspec
import pytest
from pyarrow import fs

from petastore.storage.files.fsspec_handler import Files, Handler
from petastore.storage.files.fsspec_listings import etag_in, forget_listings, listed_etag


class Remembers:
    """Notes what it is asked to forget, as file systems do that forget one path, or that forget all or nothing."""

    def __init__(self) -> None:
        self.forgotten: list[str | None] = []

    def invalidate_cache(self, path: str | None = None) -> None:
        self.forgotten.append(path)


class RemembersAll(Remembers):
    def invalidate_cache(self) -> None:  # type: ignore[override]
        self.forgotten.append(None)


@pytest.mark.parametrize(
    ("info", "etag"),
    [
        ({"ETag": '"9a"', "md5Hash": "1b"}, '"9a"'),
        ({"generation": 17, "etag": "CAE="}, "17"),
        ({"etag": None, "sha": "0c"}, "0c"),
        ({"name": "a", "size": 7}, ""),
    ],
)
def test_a_version_has_the_name_that_its_storage_uses_for_it(info: dict[str, object], etag: str) -> None:
    assert etag_in(info) == etag


def test_what_is_listed_tells_its_version_where_the_storage_names_it() -> None:
    class Names(type(fsspec.filesystem("memory"))):  # type: ignore[misc]
        protocol = "names"

        def info(self, path: str, **asked: object) -> dict[str, object]:
            return {**super().info(path, **asked), "ETag": '"9a"'}

    Names().pipe_file("/listed/a", b"abc")
    try:
        assert listed_etag(Files(Handler(Names())).get_file_info("/listed/a")) == '"9a"'
        assert listed_etag(Files(Handler(fsspec.filesystem("memory"))).get_file_info("/listed/a")) == ""
    finally:
        Names().rm("/listed", recursive=True)


def test_what_arrow_lists_itself_names_no_version(tmp_path_factory: pytest.TempPathFactory) -> None:
    assert listed_etag(fs.LocalFileSystem().get_file_info(str(tmp_path_factory.getbasetemp()))) == ""


@pytest.mark.parametrize(("path", "one", "every"), [("a/b", ["a/b"], [None]), (None, [None], [None])])
def test_a_file_system_forgets_one_path_if_it_can_and_else_all(
    path: str | None, one: list[str | None], every: list[str | None]
) -> None:
    forgets_one, forgets_all = Remembers(), RemembersAll()
    for store in (forgets_one, forgets_all):
        forget_listings(store, path)
    assert (forgets_one.forgotten, forgets_all.forgotten) == (one, every)
