# SPDX-License-Identifier: Apache-2.0
"""What a guest's serial console says of its boot. Pure. A guest prints any bytes: of them only what can be seen is
kept."""

from __future__ import annotations

import re
from typing import Final, Literal

BootOutcome = Literal["login", "output", "silent", "ended"]
"""``login``: it asked for a login; ``output``: it printed something else, for as long as it had; ``silent``: nothing;
``ended``: the VM did not run any more."""
DEFAULT_S: Final = 300
MAX_S: Final = 86_400
"""Seconds that a boot may have."""
MAX_LINE: Final = 160
"""Characters of a line that are kept."""
_ESCAPES: Final = re.compile(r"\x1b(?:\][^\x07\x1b\n]*\x07?|\[[0-9;?]*[ -/]*[@-~]|[@-Z\\-_()][0-9A-B]?)")
"""As terminals understand them (ECMA-48)."""
_PROMPT: Final = re.compile(r"(?:login|username|user name)\s*:$", re.IGNORECASE)


def seen_of(log: bytes) -> tuple[bool, str]:
    """Whether it asks for a login, and the line that does; else the last line that shows something, empty: there is
    none. Without control characters."""
    text = _ESCAPES.sub("", log.decode(errors="replace")).replace("\r", "\n")
    lines = [shown for line in text.split("\n") if (shown := "".join(filter(str.isprintable, line)).strip())]
    prompts = [line for line in lines if _PROMPT.search(line) is not None]
    return bool(prompts), (prompts or lines or [""])[-1][-MAX_LINE:]
