"""Tests of redacting secrets in URLs, options and messages; locations stay readable."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from petastore.storage.requests.failures import secrets_in_options, secrets_in_url, shown_text, shown_url, without_query

HOST = "host.example.com"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"http://T0KEN@{HOST}/a.parquet", f"http://***@{HOST}/a.parquet"),
        (f"https://me:S3CRET@{HOST}:8443/a", f"https://***@{HOST}:8443/a"),
        (f"https://me:S3/CR?E#T@{HOST}/a", f"https://***@{HOST}/a"),
        (f"https://me:S3CR@ET@{HOST}/a", f"https://***@{HOST}/a"),
        (f"https://me:S3::CR::ET@{HOST}/a", f"https://***@{HOST}/a"),
        (f"simplecache::https://me:S3::CR@{HOST}/a::s3://K:S3::CRET@b/x", f"simplecache::https://***@{HOST}/a::s3://***@b/x"),
        (f"https://{HOST}/a?X-Amz-Signature=S3CRET&x=1", f"https://{HOST}/a"),
        (f"https://{HOST}/a#S3CRET", f"https://{HOST}/a"),
        ("s3://KEY:S3CRET@bucket/a", "s3://***@bucket/a"),
        ("s3://bucket/a?versionId=S3CRET", "s3://bucket/a?***"),
        ("s3://bucket/a#S3CRET", "s3://bucket/a#***"),
        ("gs://bucket/a?token=S3CRET", "gs://bucket/a?***"),
        ("ftp://me:S3CRET@host/a", "ftp://***@host/a"),
        ("sftp://me@host/a", "sftp://***@host/a"),
        ("abfs://container@account.dfs.core.windows.net/a?sig=S3CRET", "abfs://container@account.dfs.core.windows.net/a?***"),
        ("abfs://me:S3CRET@account/a", "abfs://***@account/a"),
        ("file://u:PW@/x", "file://***@/x"),
        ("file:///x?token=S3CRET", "file:///x?***"),
        ("file:///data/what?.parquet", "file:///data/what?.parquet"),
        ("file:///data/no#1.parquet", "file:///data/no#1.parquet"),
        ("/data/me:x@y/z", "/data/me:x@y/z"),
        ("simplecache::https://u:S3CRET@h/a?sig=S3CRET", "simplecache::https://***@h/a"),
        ("zip://a.parquet::s3://K:S3CRET@b/x.zip#S3CRET", "zip://a.parquet::s3://***@b/x.zip#***"),
        ("filecache::simplecache::https://T0KEN@h/a", "filecache::simplecache::https://***@h/a"),
        ("s3://bucket/day=1/a@b:c.parquet", "s3://bucket/day=1/a@b:c.parquet"),
        ("http://127.0.0.1:9000/a@b", "http://127.0.0.1:9000/a@b"),
        ("s3://arn:aws:s3:us-west-2:123:accesspoint/mine/a@b", "s3://arn:aws:s3:us-west-2:123:accesspoint/mine/a@b"),
        ("memory://bucket/frames", "memory://bucket/frames"),
        ("hdfs://namenode:8020/data", "hdfs://namenode:8020/data"),
    ],
)  # fmt: skip
def test_url_is_shown_without_secrets(url: str, shown: str) -> None:
    assert shown_url(url) == shown
    assert shown_text(f"could not get '{url}': no") == f"could not get '{shown}': no"


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer S3CRET0123456789",
        "{'Authorization': 'Basic S3CRET0123456789=='}",
        "aws_secret_access_key=S3CRET",
        "the header x-amz-security-token: S3CRET is wrong",
        '{"password": "S3CRET", "user": "me"}',
        "AccountKey=S3CRET;EndpointSuffix=core.windows.net",
        "GET https://u:S3CRET@host/x?sig=S3CRET#S3CRET and s3://k:S3CRET@b/x",
        "client_secret='S3CRET'",
    ],
)
def test_common_credential_names_are_redacted(text: str) -> None:
    assert "S3CRET" not in shown_text(text)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("word", ["a.", "a-", "a::", "a@b", "http://", "bearer ", "token", "x=1&", "'\"", "s3::"])
def test_redacting_long_messages_is_fast(word: str) -> None:
    for message in (word * 30_000, f"http://{word * 30_000}", f"{word * 30_000}token=S3CRET"):
        assert "S3CRET" not in shown_text(message)


def test_messages_without_secrets_are_unchanged() -> None:
    for text in (
        "[Errno 2] No such file or directory: '/data/key=5/part-0.parquet'",
        "When getting information for key 'frames/part-0.parquet' in bucket 'data': AWS Error NO_SUCH_KEY",
        'Could not connect to the endpoint URL: "http://localhost:9000/bucket"',
        "unexpected keyword argument 'region'",
    ):
        assert shown_text(text) == text


def test_storage_options_are_redacted_except_addresses() -> None:
    class Credential:
        def __init__(self) -> None:
            self.account_key = "in an object"

    options = {
        "key": "AKIA0000", "secret": "s3cr3t", "anon": False, "endpoint_url": "http://me:hush@minio:9000",
        "client_kwargs": {"region_name": "eu-west-1", "headers": {"Authorization": "Bearer abcdefghijkl"}},
        "auth": ("user", "passw0rd"), "token": {"private_key": "-----BEGIN"}, "credential": Credential(),
    }  # fmt: skip
    found = secrets_in_options(options)
    assert {"AKIA0000", "s3cr3t", "hush", "abcdefghijkl", "passw0rd", "-----BEGIN", "in an object"} <= found
    assert not {"eu-west-1", "http://me:hush@minio:9000"} & found


TOKENS = st.text("abcdefXYZ0123456789-_.~%+=&;,!$@:/?#", min_size=6, max_size=20)


@settings(max_examples=500)
@example("000::a", "http")
@example("::a::b::", "s3")
@given(TOKENS, st.sampled_from(["http", "https", "s3", "gs", "ftp", "simplecache::https", "file"]))
def test_any_password_in_a_url_is_redacted(token: str, scheme: str) -> None:
    url = f"{scheme}://me:q{token}q@{HOST}/data/a.parquet"
    assert f"q{token}q" not in shown_url(url)
    assert f"q{token}q" not in shown_text(f"cannot read {url}", secrets_in_url(url))


@settings(max_examples=500)
@example("000::a", "https")
@given(TOKENS, st.sampled_from(["http", "https", "s3", "gs", "abfs"]))
def test_any_signature_in_a_url_is_redacted(token: str, scheme: str) -> None:
    url = f"{scheme}://{HOST}/data/a.parquet?sig=q{token}q"
    assert f"q{token}q" not in shown_url(url)
    assert f"q{token}q" not in shown_text(f"cannot read {url}", secrets_in_url(url))


def test_path_is_shown_without_its_query() -> None:
    assert without_query("https://host/a.parquet?x/y=z") == "https://host/a.parquet"
    assert without_query("bucket/a?sig=abc") == "bucket/a"
    assert without_query("bucket/what?") == "bucket/what?"
    assert without_query("/local/a?b=c") == "/local/a?b=c"
