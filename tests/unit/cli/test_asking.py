# SPDX-License-Identifier: Apache-2.0
"""What ends something for good is asked about where somebody types, and done where nobody does:
docs/decisions/command-line.md."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.examples import examples_of
from orchestrator.cli.tree import ENTRIES, load
from orchestrator.client.autostart import connect
from orchestrator.client.client import Client
from tests.fakes.running import running_server
from tests.fakes.typed import Cli


def _below(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(command, "commands"):
        for word, child in command.commands.items():
            yield from _below(f"{words} {word}", child)
    else:
        yield words, command


FOR_GOOD = {"delete", "remove", "revoke", "release", "delete-vm"}
LEAVES = dict(leaf for name, entry in ENTRIES.items() for leaf in _below(name, load(name, entry)))
NAMED = [
    example
    for words, command in LEAVES.items()
    if words.split()[-1] in FOR_GOOD and any(one.name == "yes" for one in command.params)
    for example in examples_of(words)
    if "--yes" not in example and " -l " not in example and "*" not in example
]
"""One thing each, by its name."""


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with running_server(tmp_path_factory.mktemp("state")) as directory:
        yield directory


@contextmanager
def _terminal(typed: str) -> Iterator[Any]:
    ours, theirs = os.openpty()
    os.write(ours, typed.encode())
    with os.fdopen(theirs) as stream:
        yield stream
    os.close(ours)


def _there(state: Path) -> list[object]:
    client = Client(connect(state))
    return [client.vms(), client.hosts(), client.images(), client.networks(), client.tenants(), client.volumes()]


def test_all_that_ends_something_for_good_is_among_them() -> None:
    assert len({shlex.split(one)[0] for one in NAMED}) >= 8, NAMED


@pytest.mark.parametrize("example", NAMED)
def test_somebody_who_types_is_asked_and_says_no(
    cli: Cli, state: Path, monkeypatch: pytest.MonkeyPatch, example: str
) -> None:
    before = _there(state)
    with _terminal("n\n") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        done = cli(*shlex.split(example))
    assert done.code in {4, 6}, done.err
    assert "[cli.not_confirmed]" in done.err or ".unknown]" in done.err, "what is not there need not be asked about"
    assert _there(state) == before


@pytest.mark.parametrize("example", NAMED)
def test_a_script_that_names_one_thing_is_not_asked(cli: Cli, monkeypatch: pytest.MonkeyPatch, example: str) -> None:
    with Path(os.devnull).open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        done = cli(*shlex.split(example))
    assert "not_confirmed" not in done.err
    assert "?" not in done.err.partition("error:")[0]


@pytest.mark.parametrize(
    "words", [words for words, command in LEAVES.items() if any(one.name == "yes" for one in command.params)]
)
def test_the_help_of_yes_says_when_a_script_needs_it(words: str) -> None:
    (option,) = (one for one in LEAVES[words].params if one.name == "yes")
    assert "Where standard input is no terminal" in option.help or option.help.startswith("Accept the host key")
