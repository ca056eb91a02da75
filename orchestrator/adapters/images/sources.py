# SPDX-License-Identifier: Apache-2.0
"""Where an image may come from: a regular file of this machine, or an http(s) URL. Nothing else is opened."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import httpx2

from orchestrator.adapters.files.opening import CHUNK, open_file
from orchestrator.core.errors import InvalidInput, Retryable

_WHO = re.compile("//[^/]*@")
"""User and password in a URL: said to nobody."""
_TIMEOUT = httpx2.Timeout(30.0)


@contextmanager
def open_source(source: str | Iterator[bytes]) -> Iterator[Iterator[bytes]]:
    """Its content in chunks; chunks are it already.

    :raises InvalidInput: ``image.source_refused``
    :raises Retryable: ``image.download_failed``
    """
    if not isinstance(source, str):
        yield source
    elif not source or not source.isprintable():
        raise _refused(source, "that is neither a path nor a URL")
    elif source.startswith("/"):
        with open_file(source, _refused) as chunks:
            yield chunks
    elif source.startswith(("http://", "https://")):
        with _open_url(source) as chunks:
            yield chunks
    else:
        raise _refused(source, "only absolute paths, http:// and https:// are allowed")


@contextmanager
def _open_url(source: str) -> Iterator[Iterator[bytes]]:
    try:
        parts = urlsplit(source)
    except ValueError as error:
        raise _refused(source, "that is not a URL") from error
    if not parts.hostname or parts.username is not None or parts.password is not None:
        raise _refused(source, "a URL needs a host and may hold no user or password")
    try:
        with httpx2.stream("GET", source, timeout=_TIMEOUT, follow_redirects=True) as response:
            response.raise_for_status()
            yield response.iter_bytes(CHUNK)
    except httpx2.InvalidURL as error:
        raise _refused(source, "that is not a URL") from error
    except httpx2.HTTPError as error:
        raise Retryable(
            "image.download_failed",
            "the image could not be downloaded",
            hint="the server's machine has to reach the URL; a file works too",
            details=str(error),
        ) from error


def _refused(source: str, why: str) -> InvalidInput:
    shown = ascii(_WHO.sub("//...@", source))[:120]
    return InvalidInput(
        "image.source_refused",
        f"image source {shown} is refused: {why}",
        hint="name a file that the server can read by its absolute path, or an http(s) URL of a public address",
    )
