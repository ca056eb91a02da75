# SPDX-License-Identifier: Apache-2.0
"""Where an image may come from: a file of this machine, an http(s) URL, or whoever asks. Nothing else is opened."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from orchestrator.adapters.files.opening import Readable
from orchestrator.adapters.images.downloads import Downloads
from orchestrator.core.errors import InvalidInput

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
