# SPDX-License-Identifier: Apache-2.0
"""A target that is reached by S3. restic does what is done in a repository there; what it cannot do, or does not say,
is asked here: which objects there are, and why not. Requests are signed as AWS's Signature Version 4 has it
(https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html)."""

from __future__ import annotations

import hmac
import os
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from threading import Event, Timer
from typing import Final
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

from orchestrator.agent.images.repository import Repository
from orchestrator.core.bucket import Bucket
from orchestrator.core.errors import Fatal, NotFound, Retryable, VgpuctlError

_REQUEST_S: Final = 20.0
"""All of an answer is there by then. A server that sends a byte now and then would keep the thread, and with it the VM
whose backup it is."""
_MAX_BYTES: Final = 4 * 2**20
"""Of an answer: a thousand names have less."""
_MAX_PAGES: Final = 200
"""Of one list: 200,000 names. A server may say that there are more for ever."""
_NOTHING: Final = sha256(b"").hexdigest()
_KEY: Final = (
    "its key is refused",
    "'vgpuctl backup target set NAME --credentials-file FILE' takes one that may list, read, write and delete",
)
_REGION: Final = (
    "its storage wants another region or address",
    "make the target again with --region, and with the address of that region",
)
_REFUSALS: Final[dict[str, tuple[type[VgpuctlError], str, str, str]]] = {
    "NoSuchBucket": (NotFound, "backup.no_bucket", "its bucket does not exist",
                     "make the bucket, or the target again with its right address"),
    "InvalidAccessKeyId": (Fatal, "backup.s3_denied", *_KEY),
    "SignatureDoesNotMatch": (Fatal, "backup.s3_denied", *_KEY),
    "AccessDenied": (Fatal, "backup.s3_denied", *_KEY),
    "RequestTimeTooSkewed": (Fatal, "backup.clock", "the clocks of host and storage differ too much",
                             "'timedatectl' on the host shows whether its clock is set by NTP"),
    "AuthorizationHeaderMalformed": (Fatal, "backup.s3_region", *_REGION),
    "PermanentRedirect": (Fatal, "backup.s3_region", *_REGION),
}  # fmt: skip
"""Code of the storage → what it is."""


@dataclass(frozen=True)
class Objects:
    """Those below the bucket's prefix."""

    bucket: Bucket
    ended: Event = field(default_factory=Event)
    """Set when nobody wants it any more."""

    def names(self, beginning: str, *, directories: bool = False) -> Iterator[str]:
        """Without the bucket's prefix. ``directories``: up to the next slash, each once.

        :raises VgpuctlError: one of :data:`_REFUSALS`, ``backup.unreachable``, ``backup.tls``, ``backup.failed``"""
        query = {"list-type": "2", "prefix": self.bucket.prefix + beginning}
        if directories:
            query["delimiter"] = "/"
        for _ in range(_MAX_PAGES):
            if self.ended.is_set():
                break
            page = _parsed(self._ask("GET", "", query))
            for name in page.iterfind(".//{*}CommonPrefixes/{*}Prefix" if directories else ".//{*}Contents/{*}Key"):
                yield str(name.text)[len(self.bucket.prefix) :]
            token = page.findtext("{*}NextContinuationToken")
            if token is None:
                return
            query["continuation-token"] = token
        raise _of_host(Fatal, "backup.failed", "its storage lists too many names", "is its bucket the right one?", "")

    def remove(self, name: str) -> None:
        """Gone already is fine. :raises VgpuctlError: as :meth:`names`"""
        self._ask("DELETE", self.bucket.prefix + name, {})

    def _ask(self, method: str, name: str, query: Mapping[str, str]) -> bytes:
        path = quote(f"/{self.bucket.name}/{name}", safe="/-_.~")
        words = "&".join(f"{quote(key, safe='-_.~')}={quote(query[key], safe='-_.~')}" for key in sorted(query))
        headers = signed(self.bucket, method, path, words, at=time.time())
        try:
            status, body = self._answered(method, f"{path}?{words}" if words else path, headers)
        except ssl.SSLCertVerificationError as error:
            hint = "make the target again with --ca-file, of whom its server's certificate is by"
            raise _of_host(Fatal, "backup.tls", "its server is not believed", hint, str(error)) from error
        except (OSError, HTTPException) as error:
            hint = "is its address right, and may the host reach it? 'curl' there tells"
            raise _of_host(Retryable, "backup.unreachable", "it is not reached", hint, str(error)) from error
        if status >= 300:
            raise _refusal(status, body)
        return body

    def _answered(self, method: str, target: str, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """No redirect is followed: the signature is for this server alone.

        :raises TimeoutError: not all of it was there in time"""
        address, connection = urlsplit(self.bucket.origin), HTTPConnection("")
        place = address.hostname or "", address.port or (443 if address.scheme == "https" else 80)
        with socket.create_connection(place, _REQUEST_S) as connected, connected.dup() as same:
            cut = Event()
            late = Timer(_REQUEST_S, _cut, (same, cut))
            late.start()
            try:
                connection.sock = connected if address.scheme == "http" else self._believed(connected, place[0])
                connection.request(method, target, headers=dict(headers))
                answer = connection.getresponse()
                status, body = answer.status, answer.read(_MAX_BYTES)
                if cut.is_set():
                    raise TimeoutError(f"it had {_REQUEST_S:g} s")
                return status, body
            finally:
                late.cancel()
                late.join()
                connection.close()

    def _believed(self, connected: socket.socket, server: str) -> socket.socket:
        trusted = ssl.create_default_context(cadata=self.bucket.ca or None)
        return trusted.wrap_socket(connected, server_hostname=server)


def _cut(connected: socket.socket, cut: Event) -> None:
    """Whoever reads from it reads its end, and knows by then that it is none. Over already is fine."""
    cut.set()
    with suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)


def signed(bucket: Bucket, method: str, path: str, query: str, *, at: float) -> dict[str, str]:
    """Headers of a request without a body; ``path`` and ``query`` as they are sent, ``at``: seconds since the epoch."""
    when = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at))
    headers = {"host": urlsplit(bucket.origin).netloc, "x-amz-content-sha256": _NOTHING, "x-amz-date": when}
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    request = "\n".join((method, path, query, lines, names, _NOTHING))
    scope = (when[:8], bucket.region or "us-east-1", "s3", "aws4_request")
    text = "\n".join(("AWS4-HMAC-SHA256", when, "/".join(scope), sha256(request.encode()).hexdigest()))
    key = f"AWS4{bucket.keys.secret_key}".encode()
    for part in (*scope, text):
        key = hmac.new(key, part.encode(), "sha256").digest()
    credential = f"Credential={bucket.keys.access_key}/{'/'.join(scope)}"
    headers["authorization"] = f"AWS4-HMAC-SHA256 {credential}, SignedHeaders={names}, Signature={key.hex()}"
    return headers


def _parsed(body: bytes) -> ElementTree.Element:
    """:raises Fatal: ``backup.failed``"""
    why = "it declares entities, or is no UTF-8"
    with suppress(UnicodeDecodeError):
        text = body.decode()
        if "<!DOCTYPE" not in text:  # nothing grows without one
            try:
                return ElementTree.fromstring(text)  # noqa: S314
            except ElementTree.ParseError as error:
                why = str(error)
    hint = "is its address one of S3, and its first part the bucket?"
    raise _of_host(Fatal, "backup.failed", "what answers there is no storage of S3", hint, why)


def _refusal(status: int, body: bytes) -> VgpuctlError:
    """What stands between may answer for a storage that does not, in no words of S3."""
    if status >= 500 or status == 429:
        words = "its storage does not answer now"
        return _of_host(Retryable, "backup.unreachable", words, "try it again", f"HTTP {status}")
    code = (_parsed(body).findtext("{*}Code") if body else None) or ""
    details = f"HTTP {status} {code[:63]!a}"
    if code in _REFUSALS:
        family, ours, words, hint = _REFUSALS[code]
        return _of_host(family, ours, words, hint, details)
    return _of_host(Fatal, "backup.failed", "its storage refuses it", "the details hold what it said", details)


def _of_host(family: type[VgpuctlError], code: str, words: str, hint: str, details: str) -> VgpuctlError:
    text = f"the backup target is not to be had on host {os.uname().nodename}: {words}"
    return family(code, text, hint=hint, details=details[:300])


@dataclass(frozen=True)
class BucketRepository(Repository):
    bucket: Bucket
    vm: str
    ca_file: Path
    """Its certificates, for restic."""

    @property
    def _at(self) -> str:
        return f"s3:{self.bucket.origin}/{self.bucket.name}/{self.bucket.prefix}{self.vm}"

    def exists(self) -> bool:
        return f"{self.vm}/config" in self._objects.names(f"{self.vm}/config")

    def has_backups(self) -> bool:
        return any(self._objects.names(f"{self.vm}/snapshots/"))

    def create(self) -> None:
        """restic writes the key first and the config last: without one there is nothing that anybody could read."""
        for name in self._objects.names(f"{self.vm}/"):
            self._objects.remove(name)
        self._done("init")

    def _environment(self) -> dict[str, str]:
        keys = {"AWS_ACCESS_KEY_ID": self.bucket.keys.access_key, "AWS_SECRET_ACCESS_KEY": self.bucket.keys.secret_key}
        return super()._environment() | keys | {"AWS_DEFAULT_REGION": self.bucket.region or "us-east-1"}

    def _options(self) -> list[str]:
        return ["--cacert", str(self.ca_file)] if self.bucket.ca else []

    @property
    def _objects(self) -> Objects:
        return Objects(self.bucket, self.ended)
