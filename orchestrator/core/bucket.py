# SPDX-License-Identifier: Apache-2.0
"""A place that is reached by S3, and what opens it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from orchestrator.core.errors import InvalidInput

MAX_CA: Final = 64 * 1024
"""Characters of the certificates that one bucket's server is believed by."""
_MAX_PORT: Final = 65535
_BUCKET_URL: Final = re.compile(
    r"https?://(?:[a-z0-9-]+(?:\.[a-z0-9-]+)*|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?/[a-z0-9][a-z0-9.-]{2,62}"
    r"(?:/[A-Za-z0-9_-][A-Za-z0-9._-]{0,62}){0,8}",
    re.ASCII,
)
"""No name of a user or password, nothing that a URL would have to escape."""


@dataclass(frozen=True, kw_only=True)
class BucketKeys:
    """Whoever has them may read and write in the bucket."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """A target that is reached by S3, as an agent is told of it."""

    url: str
    """``https://HOST[:PORT]/BUCKET[/PREFIX]``; http:// where nobody else reads the network."""
    region: str
    ca: str
    keys: BucketKeys

    @property
    def origin(self) -> str:
        return "/".join(self.url.split("/")[:3])

    @property
    def name(self) -> str:
        return self.url.split("/")[3]

    @property
    def prefix(self) -> str:
        """What names of all objects there begin with: nothing, or it ends in a slash."""
        return "".join(f"{part}/" for part in self.url.split("/")[4:])


def check_bucket_url(url: str) -> str:
    """Without the slash that it may end in. :raises InvalidInput: ``backup.s3_invalid``"""
    bare = url.removesuffix("/")
    matched = _BUCKET_URL.fullmatch(bare)
    if matched is None or int(matched["port"] or 0) > _MAX_PORT:
        hint = "--s3 https://HOST[:PORT]/BUCKET[/PREFIX], a bucket's name having 3 to 63 of a-z, 0-9, '.' and '-'"
        raise InvalidInput("backup.s3_invalid", "that is no address of a bucket", hint=hint)
    return bare
