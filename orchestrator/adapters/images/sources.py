# SPDX-License-Identifier: Apache-2.0
"""Where an image may come from: a regular file of this machine, or an http(s) URL. Nothing else is opened."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from orchestrator.core.errors import InvalidInput, Retryable, VgpuctlError

_CHUNK = 1024 * 1024
_WHO = re.compile("//[^/]*@")
"""User and password in a URL: said to nobody."""
_TIMEOUT = httpx2.Timeout(30.0)
_OF_THE_KERNEL = ("/proc/", "/sys/", "/dev/")
"""There, even what looks like a regular file is none: /proc/self/environ holds this process' environment."""


@contextmanager
def open_source(source: str) -> Iterator[Iterator[bytes]]:
    """Its content in chunks.

    :raises InvalidInput: ``image.source_refused``
    :raises Retryable: ``image.download_failed``
    """
    if not source or not source.isprintable():
        raise _refused(source, "that is neither a path nor a URL")
    if source.startswith("/"):
        with open_file(source, _refused) as chunks:
            yield chunks
    elif source.startswith(("http://", "https://")):
        with _open_url(source) as chunks:
            yield chunks
    else:
        raise _refused(source, "only absolute paths, http:// and https:// are allowed")


@contextmanager
def open_file(source: str, refused: Callable[[str, str], VgpuctlError]) -> Iterator[Iterator[bytes]]:
    """A regular file in chunks; ``refused`` makes the error of a path and why it is none."""
    if ".." in Path(source).parts:
        raise refused(source, "the path goes through '..'")
    try:
        # O_NONBLOCK: opening a FIFO must not wait for a writer.
        descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        why = "it is a symbolic link" if error.errno == errno.ELOOP else (error.strerror or "it cannot be opened")
        raise refused(source, why.lower()) from error
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise refused(source, "it is not a regular file")
        if str(Path(f"/proc/self/fd/{descriptor}").readlink()).startswith(_OF_THE_KERNEL):
            raise refused(source, "it is the kernel's, not a disk's")
        if about.st_nlink != 1:
            raise refused(source, "it has several names (hard links)")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            yield iter(lambda: file.read(_CHUNK), b"")
    finally:
        os.close(descriptor)


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
            yield response.iter_bytes(_CHUNK)
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
