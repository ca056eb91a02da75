# SPDX-License-Identifier: Apache-2.0
"""Every command that a text of the product tells people to run is read as it stands by the real parser."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from typer import TyperException

from orchestrator.cli.tree import ENTRIES, load, with_tenant
from orchestrator.core.errors import VgpuctlError
from tools.tree import files, nodes, text

OURS = "vgpuctl "
QUOTED = re.compile(r"'vgpuctl ([^']+)'")
BARE = re.compile(r"(?:^|(?<![`'#\w-]))vgpuctl ([a-z][a-z-]*(?: [^:;,)]*)?)")
"""A command that no quotes end: what follows it to the next stop has to be part of it."""
VALUES = {
    "{words}": "--label key=value", "{way}": "retry", "{roles[0]}": "guest_driver", "{run}": "serve",
    "{_options(existing, context)}": "--tenant a", "{example}": "whoami",
    "{command}": "host list",
}  # fmt: skip
"""What stands for whole words of a command; any other value inside a text reads as the name ``x1``."""
FILLED_IN_LATER = re.compile(r"\{\w*\}")
NO_COMMANDS = ("orchestrator/cli/examples.py", "orchestrator/cli/tree.py", "orchestrator/adapters/seed/nocloud.py")
"""Examples are read by test_reference.py; the quotes of the others are patterns and YAML."""


def _written(node: ast.JoinedStr) -> str:
    def value(part: ast.expr) -> str:
        if isinstance(part, ast.Constant):
            return str(part.value)
        name = "{" + ast.unparse(part.value if isinstance(part, ast.FormattedValue) else part).split(".")[-1] + "}"
        return VALUES.get(name, "x1")

    return "".join(map(value, node.values))


def _texts() -> Iterator[tuple[str, str]]:
    """Every text of the product that is no docstring and says our command's name."""
    for path in files(".py", under="orchestrator/"):
        if OURS in text(path):
            yield from ((path.as_posix(), said) for said in _said_in(nodes(path)) if OURS in said)


def _said_in(found: Sequence[ast.AST]) -> Iterator[str]:
    parts = {id(part) for node in found if isinstance(node, ast.JoinedStr) for part in node.values}
    parts |= {id(node.value) for node in found if isinstance(node, ast.Expr)}  # docstrings
    for node in found:
        if isinstance(node, ast.JoinedStr):
            yield _written(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value


def _named(said: str) -> Iterator[str]:
    said = FILLED_IN_LATER.sub("x1", said)
    yield from QUOTED.findall(said)
    for match in BARE.finditer(QUOTED.sub("", said)):
        if match[1].split()[0] in ENTRIES:
            yield match[1].strip()


HINTED = sorted({(path, words) for path, said in _texts() if path not in NO_COMMANDS for words in _named(said)})


def read(words: str) -> None:
    """Down to types and checks, and nothing is done.

    :raises KeyError: there is no such command; :raises TyperException, VgpuctlError: it is refused"""
    first, *rest = [word.lower() if re.fullmatch("[A-Z][A-Z-]+", word) else word for word in shlex.split(words)]
    command: Any = load(first, ENTRIES[first])
    while rest and not rest[0].startswith("-") and hasattr(command, "commands"):
        command = command.commands[rest.pop(0)]
    if rest != ["--help"]:
        command.make_context(first, rest, obj=None)


@pytest.mark.parametrize(("path", "words"), HINTED)
def test_a_command_that_a_text_tells_people_to_run_can_be_pasted(path: str, words: str) -> None:
    try:
        read(words)
    except (TyperException, VgpuctlError, KeyError) as error:
        pytest.fail(f"{path} says 'vgpuctl {words}': {error!r}")


PLACEHOLDER = re.compile(r"\b(HOST|TENANT|PROFILE|SUBJECT|VM|ADDRESS|ID)\b")
HOST_IS_PUT_IN = ("orchestrator/agent/", "orchestrator/core/wire.py")
"""By core/errors.py, for who reads it at a controller."""
NOT_KNOWN_THERE = {
    ("orchestrator/services/tenancy/tenancy.py", "tenant add-member TENANT x1"),
    ("orchestrator/core/names.py", "volume attach NAME VM --read-only"),
    ("orchestrator/services/networks.py", "host show HOST"),
    ("orchestrator/cli/words.py", "explain -p PROFILE"),
    ("orchestrator/cli/words.py", "capacity -p PROFILE"),
    ("orchestrator/cli/words.py", "image create NAME --from-snapshot VM/SNAPSHOT"),
    ("orchestrator/cli/words.py", "create-vm NEW -p PROFILE --from-snapshot VM/SNAPSHOT"),
    ("orchestrator/adapters/ansible/outcome.py", "operation show ID"),
    ("orchestrator/services/network_paths.py", "network address attach x1 VM --tenant x1"),
    ("orchestrator/services/vms/volume_snapshots.py", "volume attach x1 VM --tenant x1"),
}
"""Who chooses is the reader."""


def test_names_that_are_known_stand_in_the_command() -> None:
    open_places = {(path, words) for path, words in HINTED if PLACEHOLDER.search(words)}
    assert {one for one in open_places if not one[0].startswith(HOST_IS_PUT_IN)} == NOT_KNOWN_THERE


def test_hints_of_every_layer_are_among_them() -> None:
    named = {words for _, words in HINTED}
    assert {"tenant list", "token list", "host show x1", "doctor"} <= named


@pytest.mark.parametrize("words", ["show-vm", "network delete --shared", "host list --state", "gpu gone", "resize x1"])
def test_what_cannot_be_pasted_is_noticed(words: str) -> None:
    with pytest.raises((TyperException, VgpuctlError, KeyError)):
        read(words)


def test_a_hint_names_the_tenant_that_the_command_named() -> None:
    hint = "'vgpuctl stop-vm web1' stops it; 'vgpuctl operation wait 12', 'vgpuctl list-vms --tenant b'"
    assert with_tenant(hint, "a") == (
        "'vgpuctl stop-vm web1 --tenant a' stops it; 'vgpuctl operation wait 12', 'vgpuctl list-vms --tenant b'"
    )
    assert with_tenant(hint, None) == hint
    assert with_tenant(None, "a") is None
