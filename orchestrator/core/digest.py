# SPDX-License-Identifier: Apache-2.0
"""SHA-256 digests as people give them."""

from __future__ import annotations

import re
from typing import Final

from orchestrator.core.errors import InvalidInput

_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII | re.IGNORECASE)


def check_sha256(text: str | None, code: str) -> str | None:
    """In lower case; None: none was given. ``code``: of the refusal.

    :raises InvalidInput: ``code``
    """
    if text is not None and _SHA256.fullmatch(text) is None:
        raise InvalidInput(code, "a SHA-256 has 64 hexadecimal digits", hint="write the output of sha256sum")
    return None if text is None else text.lower()
