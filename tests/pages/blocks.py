# SPDX-License-Identifier: Apache-2.0
"""What a page asks its reader to type: blocks without a language and ``sh`` are a shell's, ``python`` is Python."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_FENCE: Final = re.compile(r"^( *)```([a-z]*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_INLINE: Final = re.compile(r"`(vgpuctl [^`]*)`", re.DOTALL)
SHELL: Final = ("", "sh")


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """Language and text of each, from the page's top."""
    for _, language, content in _FENCE.findall(page.read_text(encoding="utf-8")):
        yield language, textwrap.dedent(content)


def shell_blocks(page: Path) -> list[str]:
    return [content for language, content in blocks(page) if language in SHELL]


def python_of(page: Path) -> str:
    """All of it: a page is one program."""
    return "\n".join(content for language, content in blocks(page) if language == "python")


def commands(page: Path) -> list[str]:
    """What is typed, line by line: without comments, and a line that goes on is one with the next."""
    joined = "\n".join(shell_blocks(page)).replace("\\\n", " ")
    lines = (re.sub(r"(^|\s)# .*", "", line).strip() for line in joined.splitlines())
    return [" ".join(line.split()) for line in lines if line]


def inline_commands(page: Path) -> list[str]:
    """Those that stand in sentences and tables."""
    prose = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return [" ".join(found.split()) for found in _INLINE.findall(prose)]


def shows_answers(page: Path) -> bool:
    """Whether it is a page of commands with their answers, as somebody has typed them."""
    return any(re.search(r"^\w*\$ ", content, re.MULTILINE) for _, content in blocks(page))
