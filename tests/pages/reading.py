# SPDX-License-Identifier: Apache-2.0
"""Commands that cannot be typed here are read: by the real parser, down to types and checks, and nothing is done."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any, Final

from orchestrator.cli.tree import ALIASES, ENTRIES, load

_ASSIGNED: Final = re.compile(r"[A-Z_]+=\S*")
_WITHIN: Final = re.compile(r"ProxyCommand='(vgpuctl [^']*)'")
_PLACEHOLDER: Final = re.compile(r"[A-Z][A-Z0-9_-]*|.*….*")


def ours(line: str) -> Iterator[list[str]]:
    """The words after ``vgpuctl`` of every command of ours in a line, redirections left out."""
    yield from (shlex.split(found)[1:] for found in _WITHIN.findall(line))
    for words in simple_commands(line):
        while words and _ASSIGNED.fullmatch(words[0]):
            del words[0]
        if words and words[0] == "vgpuctl":
            yield words[1:]


def simple_commands(line: str) -> list[list[str]]:
    """What stands between ``|``, ``&&`` and ``;``."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    file_comes = False
    for word in lexer:
        if set(word) <= set("|&;"):
            found.append([])
        elif set(word) <= set("<>"):
            file_comes = True
        elif file_comes:
            file_comes = False
        else:
            found[-1].append(word)
    return found


def read(words: list[str]) -> None:
    """:raises VgpuctlError, typer.TyperException: it would be refused before anything is done"""
    path, command, given = _command(words)
    command.make_context(path, given, resilient_parsing=False, obj=None)


def unknown_words(words: list[str]) -> list[str]:
    """Of a command in a sentence, which may leave arguments out: commands and options that there are not."""
    if not words or _PLACEHOLDER.fullmatch(words[0]):
        return []
    if words[0].startswith("-"):
        return [] if words == ["--version"] else words[:1]
    if ALIASES.get(words[0], words[0]) not in ENTRIES:
        return words[:1]
    path, command, given = _command(words)
    if hasattr(command, "commands"):
        return [one for one in given[:1] if not one.startswith("-") and not _PLACEHOLDER.fullmatch(one)]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    before = given[: given.index("--")] if "--" in given else given
    options = [one.partition("=")[0] for one in before if re.match(r"--?[a-z]", one)]
    return [f"{path} {one}" for one in options if one not in known | {"--help", "-h"}]


def _command(words: list[str]) -> tuple[str, Any, list[str]]:
    """What it is called, the command itself, and what is given to it."""
    name = ALIASES.get(words[0], words[0])
    command, given = load(name, ENTRIES[name]), words[1:]
    while given and given[0] in getattr(command, "commands", {}):
        name, command, given = f"{name} {given[0]}", command.commands[given[0]], given[1:]
    return name, command, given
