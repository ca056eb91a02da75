# SPDX-License-Identifier: Apache-2.0
"""Where an image may come from: a file of this machine, an http(s) URL, or whoever asks. Nothing else is opened.

Downloads come from addresses that are not the server's own: what a URL and each redirect names is resolved, judged, and
connected to by that very address. No proxy is asked: it would resolve the name again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

import httpx2

from orchestrator.adapters.files.opening import CHUNK, Readable, Refuse
from orchestrator.adapters.public_addresses import Address, Network, addresses_of, may_ask
from orchestrator.adapters.whole_answer import of_file, paced
from orchestrator.core.errors import InvalidInput, Retryable

_WHO = re.compile("//[^/]*@")
"""User and password in a URL: said to nobody."""


@dataclass(frozen=True, kw_only=True)
class Sources:
    """The files and addresses that may be named."""

    files: Readable
    downloads: Downloads

    @contextmanager
    def open(self, source: str | Iterator[bytes]) -> Iterator[Iterator[bytes]]:
        """Its content in chunks; chunks are it already.

        :raises InvalidInput: ``image.source_refused``
        :raises Retryable: ``image.download_failed``
        """
        if not isinstance(source, str):
            yield source
        elif not source or not source.isprintable():
            raise _refused(source, "that is neither a path nor a URL")
        elif source.startswith("/"):
            with self.files.open(source, _refused) as chunks:
                yield chunks
        elif source.startswith(("http://", "https://")):
            with self.downloads.open(source, _refused) as chunks:
                yield chunks
        else:
            raise _refused(source, "only absolute paths, http:// and https:// are allowed")


def _refused(source: str, why: str) -> InvalidInput:
    shown = ascii(_WHO.sub("//...@", source))[:120]
    return InvalidInput(
        "image.source_refused",
        f"image source {shown} is refused: {why}",
        hint="name a file that the server can read by its absolute path, or an http(s) URL of a public address",
    )


_TIMEOUT: Final = httpx2.Timeout(30.0)
_MAX_REDIRECTS: Final = 10


@dataclass(frozen=True)
class Downloads:
    """``allowed``: networks of addresses that are not public and may be asked all the same, as those of a mirror."""

    allowed: tuple[Network, ...] = ()

    @contextmanager
    def open(self, source: str, refused: Refuse) -> Iterator[Iterator[bytes]]:
        """The content in chunks.

        :raises Retryable: ``image.download_failed``
        """
        try:
            with ExitStack() as stack:
                client = stack.enter_context(httpx2.Client(timeout=_TIMEOUT, trust_env=False))
                yield self._answer(client, stack, source, refused).iter_bytes(CHUNK)
        except httpx2.InvalidURL as error:
            raise refused(source, "that is not a URL") from error
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.CookieConflict) as error:
            raise _failed(str(error)) from error

    def _answer(self, client: httpx2.Client, stack: ExitStack, source: str, refused: Refuse) -> httpx2.Response:
        url, trace = httpx2.URL(source), paced(of_file(), httpx2.ReadTimeout)
        for _ in range(_MAX_REDIRECTS):
            if url.scheme not in {"http", "https"} or not url.host or url.userinfo:
                raise refused(source, "a URL is http(s), has a host and holds no user or password")
            address = self._address(url, source, refused)
            request = client.build_request(
                "GET",
                url.copy_with(host=str(address)),
                headers={"Host": url.netloc.decode("ascii")},
                extensions={"sni_hostname": url.raw_host.decode("ascii"), "trace": trace},
            )
            answer = client.send(request, stream=True)
            stack.callback(answer.close)
            if not answer.has_redirect_location:
                return answer.raise_for_status()
            url = url.join(answer.headers["location"])
        raise _failed(f"more than {_MAX_REDIRECTS} redirects")

    def _address(self, url: httpx2.URL, source: str, refused: Refuse) -> Address:
        """The first one of the name; all of them are judged."""
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            addresses = addresses_of(url.raw_host.decode("ascii").strip("[]"), port)
        except (OSError, ValueError, OverflowError) as error:
            raise _failed(f"{url.host[:80]!a} is not known") from error
        if not all(may_ask(address, self.allowed) for address in addresses):
            raise refused(source, "it leads to an address that is not public (setting image_networks allows networks)")
        return addresses[0]


def _failed(why: str) -> Retryable:
    return Retryable(
        "image.download_failed",
        "the image could not be downloaded",
        hint="the server's machine has to reach the URL directly; a file works too",
        details=why,
    )
