# SPDX-License-Identifier: Apache-2.0
"""A storage of S3 in memory with one bucket and one key, as far as restic and the agent ask it. It checks the signature
of each request, whoever sends it, so that a client that signs wrongly is refused as by any other."""

from __future__ import annotations

import hmac
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import md5, sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

PAGE = 3
"""Names in one page of a list: clients have to ask for more."""


@dataclass
class ObjectStorage:
    bucket: str = "backups"
    access_key: str = "AKID"
    secret_key: str = "of/the+key"
    objects: dict[str, bytes] = field(default_factory=dict)
    refuses: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Method → status and code that it answers instead."""
    port: int = 0
    tls: bool = False

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}/{self.bucket}"

    @contextmanager
    def served(self, certificate: Path | None = None) -> Iterator[ObjectStorage]:
        """On a port of loopback. ``certificate``: file of it and its key."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"storage": self}))
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket, self.tls = context.wrap_socket(server.socket, server_side=True), True
        self.port = server.server_port
        thread = Thread(target=lambda: server.serve_forever(0.02))
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    storage: ObjectStorage
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Nowhere."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        address = urlsplit(self.path)
        query = dict(parse_qsl(address.query, keep_blank_values=True))
        _, bucket, *name = unquote(address.path).split("/", 2)
        refused = self.storage.refuses.get(self.command) or self._refused(address.path, query)
        if refused is None and bucket != self.storage.bucket:
            refused = 404, "NoSuchBucket"
        if refused is not None:
            self._answer(refused[0], f"<Error><Code>{refused[1]}</Code><Message>{_SAID[refused[1]]}</Message></Error>")
        elif name and name[0]:
            self._object(name[0], body)
        elif "location" in query:
            self._answer(200, "<LocationConstraint>us-east-1</LocationConstraint>")
        else:
            self._answer(200, self._listed(query))

    do_GET = do_HEAD = do_PUT = do_DELETE = _serve  # noqa: N815 - as http.server calls them

    def _object(self, name: str, body: bytes) -> None:
        objects = self.storage.objects
        if self.command == "PUT":
            if self.headers["x-amz-content-sha256"].startswith("STREAMING"):
                body = b"".join(_unchunked(body))
            objects[name] = body
            self._answer(200)
        elif self.command == "DELETE":
            objects.pop(name, None)
            self._answer(204)
        elif name not in objects:
            self._answer(404, f"<Error><Code>NoSuchKey</Code><Message>{_SAID['NoSuchKey']}</Message></Error>")
        else:
            content = objects[name]
            wanted = self.headers.get("range", "").removeprefix("bytes=")
            first, last = [*wanted.split("-"), ""][:2]
            cut = content[int(first or 0) : int(last) + 1 if last else None]
            more = {"content-range": f"bytes {first}-{int(first) + len(cut) - 1}/{len(content)}"} if wanted else {}
            self._answer(206 if wanted else 200, cut, more)

    def _listed(self, query: dict[str, str]) -> str:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        names = set()
        for name in self.storage.objects:
            if name.startswith(prefix):
                end = name.find(delimiter, len(prefix)) if delimiter else -1
                names.add(name if end < 0 else name[: end + 1])
        left = sorted(name for name in names if name > query.get("continuation-token", ""))
        page = left[:PAGE]
        next_page = f"<NextContinuationToken>{page[-1]}</NextContinuationToken>" if left[PAGE:] else ""
        return (
            f'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>{self.storage.bucket}</Name>'
            f"<IsTruncated>{str(bool(next_page)).lower()}</IsTruncated>{next_page}"
            + "".join(
                f"<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>" if delimiter and name.endswith(delimiter)
                else f"<Contents><Key>{name}</Key><Size>{len(self.storage.objects[name])}</Size></Contents>"
                for name in page
            )
            + "</ListBucketResult>"
        )  # fmt: skip

    def _answer(self, status: int, body: str | bytes = b"", more: dict[str, str] | None = None) -> None:
        content = body.encode() if isinstance(body, str) else body
        tag = md5(content, usedforsecurity=False).hexdigest()
        self.send_response(status)
        modified = "Mon, 30 Nov 2026 10:00:00 GMT"
        for key, value in {"etag": f'"{tag}"', "last-modified": modified, **(more or {})}.items():
            self.send_header(key, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _refused(self, path: str, query: dict[str, str]) -> tuple[int, str] | None:
        """As the documentation of Signature Version 4 has it."""
        its = self.headers
        credential, names, signature = (part.split("=", 1)[1] for part in its["authorization"].split(","))
        key, day, region, *_ = credential.split("/")
        if key != self.storage.access_key:
            return 403, "InvalidAccessKeyId"
        words = "&".join(f"{quote(k, safe='-_.~')}={quote(v, safe='-_.~')}" for k, v in sorted(query.items()))
        said = "".join(f"{name}:{its[name].strip()}\n" for name in names.split(";"))
        request = "\n".join((self.command, path, words, said, names, its["x-amz-content-sha256"]))
        scope = f"{day}/{region}/s3/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{its['x-amz-date']}\n{scope}\n{sha256(request.encode()).hexdigest()}"
        secret = f"AWS4{self.storage.secret_key}".encode()
        for part in (day, region, "s3", "aws4_request", text):
            secret = hmac.new(secret, part.encode(), "sha256").digest()
        return None if secret.hex() == signature else (403, "SignatureDoesNotMatch")


def _unchunked(body: bytes) -> Iterator[bytes]:
    """``SIZE;chunk-signature=…`` before each piece."""
    while body:
        head, _, rest = body.partition(b"\r\n")
        size = int(head.split(b";")[0], 16)
        yield rest[:size]
        body = rest[size + 2 :]


_SAID = {
    "NoSuchBucket": "The specified bucket does not exist",
    "NoSuchKey": "The specified key does not exist.",
    "InvalidAccessKeyId": "The AWS Access Key Id you provided does not exist in our records.",
    "SignatureDoesNotMatch": "The request signature we calculated does not match the signature you provided.",
    "AccessDenied": "Access Denied.",
    "RequestTimeTooSkewed": "The difference between the request time and the current time is too large.",
    "QuotaExceeded": "Bucket quota exceeded",
    "SlowDown": "Please reduce your request rate.",
    "AuthorizationHeaderMalformed": "The region 'us-east-1' is wrong; expecting 'garage'",
}
