"""Tests of comparing file versions by etag, mtime and size."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from petastore.storage.stores.interface import FileVersion

TEXTS = st.sampled_from(["", "a", "b", 'W/"a"'])
VERSIONS = st.builds(FileVersion, st.integers(0, 2), TEXTS, st.sampled_from(["", "x", "y"]))


@given(VERSIONS, VERSIONS)
def test_file_version_equality_is_symmetric(one: FileVersion, other: FileVersion) -> None:
    assert one.is_same(one)
    assert one.is_same(other) == other.is_same(one)


def test_file_version_differs_by_size() -> None:
    assert not FileVersion(1, "a").is_same(FileVersion(2, "a"))


def test_weak_etag_cannot_be_used_in_if_match() -> None:
    weak = FileVersion(1, 'W/"a"')
    assert weak.is_same(FileVersion(1, '"a"'))
    assert not weak.is_same(FileVersion(1, '"b"'))
    assert (weak.strong_etag, FileVersion(1, '"a"').strong_etag) == ("", '"a"')
